"""All that is decided of a gradient before its code is made: what is asked for, kept, and added how."""
