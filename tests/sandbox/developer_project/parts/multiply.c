#include "parts.h"

int multiply(int a, int b) { return a * b; }
