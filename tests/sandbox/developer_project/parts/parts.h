int add(int a, int b);
int multiply(int a, int b);
int negate(int a);
int square(int a);
