"""Which class holds a model file that has several models: by group, or of labels."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corgipile.linear.model import Model

__all__ = ["several_of"]


def several_of(params: dict[str, Any]) -> "type[Model] | None":
    """Return the class of several models by what they were trained with; None where there is one.

    Raises:
        TypeError, ValueError: What is said of them is damaged.
    """
    if "labels" in params:
        from corgipile.linear.multilabel import LabelModels, check_labels  # noqa: PLC0415 - which is a model itself

        check_labels(params)
        return LabelModels
    if "by" in params:
        from corgipile.linear.groups import Groups, check_groups  # noqa: PLC0415 - as above

        check_groups(params)
        return Groups
    return None
