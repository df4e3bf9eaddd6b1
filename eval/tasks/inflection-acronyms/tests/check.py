import subprocess, sys
import inflection as i
before = {word: (i.camelize(word), i.camelize(word, False), i.underscore(word), i.humanize(word), i.titleize(word)) for word in ("html_parser", "device_type", "IOError", "author_id", "x-men: the last stand", "TheManWithoutAPast", "a", "restful_api", "HTMLTidyGenerator")}
assert before["html_parser"] == ("HtmlParser", "htmlParser", "html_parser", "Html parser", "Html Parser")
assert before["IOError"][2] == "io_error"
i.acronym("HTML")
i.acronym("RESTful")
i.acronym("API")
assert i.camelize("html_parser") == "HTMLParser" and i.camelize("my_html") == "MyHTML" and i.camelize("restful_api") == "RESTfulAPI"
assert i.camelize("html_parser", False) == "htmlParser" and i.camelize("my_html_parser", False) == "myHTMLParser"
assert i.camelize("htmlx_parser") == "HtmlxParser" and i.camelize("xhtml") == "Xhtml" and i.camelize("device_type") == "DeviceType"
for word in ("my_html_parser", "restful_api", "html", "html_api", "restful_controller"):
    assert i.underscore(i.camelize(word)) == word, (word, i.camelize(word), i.underscore(i.camelize(word)))
assert i.underscore("MyHTMLParser") == "my_html_parser" and i.underscore("IOError") == "io_error"
assert i.humanize("html_parser") == "HTML parser" and i.humanize("my_html_id") == "My HTML" and i.humanize("restful_api") == "RESTful API"
assert i.titleize("html_parser") == "HTML Parser" and i.titleize("the_restful_api") == "The RESTful API" and i.titleize("x-men: the last stand") == "X Men: The Last Stand"
assert i.camelize("device_type") == before["device_type"][0] and i.titleize("TheManWithoutAPast") == "The Man Without A Past"
clean = "import inflection as i; print(i.camelize('html_parser'), i.titleize('html_parser'))"
assert subprocess.run([sys.executable, "-B", "-c", clean], capture_output=True, text=True).stdout == "HtmlParser Html Parser\n"
print("passed")
