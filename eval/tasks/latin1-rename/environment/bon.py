# -*- coding: latin-1 -*-
from kasse import summe

WAREN = [("Käse", 3.5), ("Brötchen", 0.4)]

for name, preis in WAREN:
    print(f"{name}: {preis:.2f}")
print(f"für alles: {summe(WAREN):.2f}")
