"""An engine that runs tasks here, one after the other, as others do in processes of their own."""

import pickle


class Here:
    """Runs tasks on what a pickle keeps of their work."""

    def each(self, write, tasks):
        return [_kept(write)(task) for task in range(tasks)]

    def dealt(self, deal, tasks, merge, piles):
        found = {}
        for task in range(tasks):
            for pile, rows in _kept(deal)(task):
                found.setdefault(pile, []).append(rows)
        assert set(found) <= set(range(piles))
        return [_kept(merge)(pile, iter(found[pile])) for pile in sorted(found)]


def _kept(work):
    return pickle.loads(pickle.dumps(work))  # noqa: S301 - what was just made
