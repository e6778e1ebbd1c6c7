"""Minimum cuts of small graphs, by Dinic's algorithm."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from itertools import pairwise

Node = Hashable


class Network:
    """Edges with whole-numbered capacities. `room`: what more can flow from one node to another."""

    def __init__(self) -> None:
        self.room: dict[Node, dict[Node, int]] = {}

    def add(self, start: Node, end: Node, capacity: int) -> None:
        forward = self.room.setdefault(start, {})
        forward[end] = forward.get(end, 0) + capacity
        self.room.setdefault(end, {}).setdefault(start, 0)

    def source_side(self, source: Node, sink: Node) -> set[Node]:
        """The nodes on the source's side of a minimum cut: of several, the one nearest to the source."""
        while sink in (levels := self._levels(source)):
            self._fill(source, sink, levels)
        return set(levels)

    def _levels(self, source: Node) -> dict[Node, int]:
        """How far nodes are from the source, along edges with room."""
        found = {source: 0}
        todo = deque([source])
        while todo:
            node = todo.popleft()
            for following, room in self.room.get(node, {}).items():
                if room and following not in found:
                    found[following] = found[node] + 1
                    todo.append(following)
        return found

    def _fill(self, source: Node, sink: Node, levels: dict[Node, int]) -> None:
        """Sends what it can along shortest paths. Edges that led nowhere once are not tried again: `tried`."""
        following = {node: list(self.room[node]) for node in levels}
        tried = dict.fromkeys(levels, 0)
        path = [source]
        while path:
            node = path[-1]
            if node == sink:
                del path[self._send(path) + 1 :]
            elif tried[node] == len(following[node]):
                path.pop()
                if path:
                    tried[path[-1]] += 1
            else:
                end = following[node][tried[node]]
                if self.room[node][end] and levels.get(end) == levels[node] + 1:
                    path.append(end)
                else:
                    tried[node] += 1

    def _send(self, path: list[Node]) -> int:
        """Fills up a path; the place in it from which nothing more can go on."""
        edges = list(pairwise(path))
        amount = min(self.room[start][end] for start, end in edges)
        for start, end in edges:
            self.room[start][end] -= amount
            self.room[end][start] += amount
        return next(k for k, (start, end) in enumerate(edges) if not self.room[start][end])
