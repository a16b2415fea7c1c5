"""What bench-cache asks and shows. Must not know how anything is measured."""
