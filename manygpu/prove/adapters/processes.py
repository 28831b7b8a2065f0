"""Steps that a process a device takes: the book's ring, MultiWorkerMirroredStrategy."""
