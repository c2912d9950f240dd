"""Data that lies outside: volumes by name, and how they are mounted into runs."""
