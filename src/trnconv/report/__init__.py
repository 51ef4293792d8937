"""Reports of modelled convolutions: what there is to say, apart from how it is shown.

`of_model.report_of_model` and `of_layer.report_of_layer` plan and price, `assemble.make_report`
makes a `content.Report` of that, and `page.page` or `content.as_json` writes it down.
"""
