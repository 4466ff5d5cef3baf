"""Files of other systems: XML and Java properties. Imported only when such a file is read."""
