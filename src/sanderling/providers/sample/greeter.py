"""Greetings."""


def greet(name):
    return "Hello, " + name + "!"


def greet_all(names):
    return [greet(name) for name in names[1:]]
