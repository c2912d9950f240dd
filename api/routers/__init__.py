"""One router a noun; a handler only translates between HTTP and a use case."""
