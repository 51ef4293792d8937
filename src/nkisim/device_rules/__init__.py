"""What people who ran NKI kernels on devices reported, as rules with their evidence.

`rulebook.RULES` is the data, beside the hardware numbers of `nkisim.machine`; `switches` says what
is done about a broken rule, and `rule_monitor` notes it in a run.
"""
