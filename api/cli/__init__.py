"""The command line `muster`. Modules named like a noun hold its verbs; nothing here knows the server's insides."""
