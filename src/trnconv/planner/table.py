"""The table of forms. A form is a folder of `forms` and a line here."""

from __future__ import annotations

from typing import Any

from trnconv.forms.depthwise.form import DEPTHWISE
from trnconv.forms.difference.form import DIFFERENCE
from trnconv.forms.direct.form import DIRECT
from trnconv.forms.filter_gradient.form import GRADIENT
from trnconv.forms.form import Form, Plan, Priced
from trnconv.forms.minimal.form import MINIMAL

# In this order they are asked; where prices are equal, the earlier is taken.
FORMS: list[Form[Any]] = [DIRECT, MINIMAL, DIFFERENCE, DEPTHWISE, GRADIENT]


def form_named(name: str) -> Form[Any]:
    """The form of this name."""
    return next(form for form in FORMS if form.name == name)


def form_of(plan: Plan) -> Form[Any]:
    """The form that made a plan."""
    return form_named(plan.form)


def priced(plan: Plan) -> Priced:
    """A plan with its cost in closed form."""
    return Priced(plan, form_of(plan).cost(plan))
