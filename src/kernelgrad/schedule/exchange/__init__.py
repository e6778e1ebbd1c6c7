"""Loop exchange: adjoints of shared cells, each summed up by one thread."""
