import sys

from shop.cart import Cart
from shop.util import format_size, words


def main():
    cart = Cart(*sys.argv[1:])
    print(format_size(cart.total()), "in", words(len(cart.sizes), "part"))


if __name__ == "__main__":
    main()
