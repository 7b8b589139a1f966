"""Rehearse: recorded agent runs are played as tasks that move between devices, with kills and offline spells."""

__all__: list[str] = []
