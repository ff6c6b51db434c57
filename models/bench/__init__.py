"""The benchmark: the same work by onstage and by its peers, each in a process of its own, round by round in turn."""
