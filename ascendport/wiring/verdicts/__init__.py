"""Does an assignment land on a name that somebody reads afterwards?

Rests on names only: whether the code that reads a name is itself ever run is not judged.
"""
