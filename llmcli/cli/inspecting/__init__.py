"""inspect-layers: the table of views, and one file a view that turns its data into lines.

A view's module is named after it and holds DRAWING. What it computes lives in insight/, and
whatever needs torch is imported inside functions.
"""
