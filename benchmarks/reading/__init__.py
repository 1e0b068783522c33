"""How whole a log is read: what was written against what was read.

fuzz     tables of numbers in every shape that a console has, read back value for value
whole    the files of a folder: rows and columns counted apart from the importers, and as read
"""
