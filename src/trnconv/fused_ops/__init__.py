"""What stands between the convolutions of a decoder, as kernels: norms, attention, modulation.

A problem is a frozen record of sizes. It says what it refuses, follows from itself into a plan and
a recipe, has a price by the cost model, and runs in nkisim (`simulate` of its folder).
"""
