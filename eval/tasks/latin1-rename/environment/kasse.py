# -*- coding: latin-1 -*-
# Beträge in Euro. Für Rabatte siehe früher.


def summe(waren):
    """Rechnet zusammen, für größere Mengen."""
    return sum(preis for _, preis in waren)
