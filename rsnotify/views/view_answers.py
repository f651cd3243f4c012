"""How often each view has answered, for those who watch the hub."""

from collections import Counter
from typing import Literal, get_args

View = Literal["oai", "atom", "iiif"]


class ViewAnswers(Counter[View]):
    """The number of answers by view; refusals over HTTP are none."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(get_args(View), 0))
