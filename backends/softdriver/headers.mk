# How the vendors' own headers come here for `make check`; included by Makefile. They are the vendors' and stay out of the repository: each kind is
# fetched once, from where its vendor or Debian publishes it, into the repository's build/. A check takes them from a named folder instead (CU12=dir ...).

# $(1): folder in $(FETCHED); $(2): folder of the wheel that is kept; $(3): a file in it; $(4): the package; $(5): a wheel's tags, where it has several.
define fetch_wheel
$$(FETCHED)/$(1)/$(2)/$(3):
	rm -rf $$(FETCHED)/$(1) && mkdir -p $$(FETCHED)/$(1)
	$$(PYTHON) -m pip download --quiet --no-deps --only-binary=:all: $(5) --dest $$(FETCHED)/$(1) $(4)
	$$(PYTHON) -c 'import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); z.extractall(sys.argv[2], [n for n in z.namelist() if n.startswith("$(2)/")])' \
	  $$(FETCHED)/$(1)/*.whl $$(FETCHED)/$(1)
	rm $$(FETCHED)/$(1)/*.whl
	touch $$@
endef

# $(1): folder in $(FETCHED); $(2): a file in it; $(3): the package of Debian; $(4): the variable that names a folder instead. Nothing is installed.
define fetch_deb
$$(FETCHED)/$(1)/$(2):
	@command -v apt-get >/dev/null || { echo "make check: no apt-get here to fetch $(3) with: say $(4)=dir, where dir has the headers of that package" >&2; exit 1; }
	rm -rf $$(FETCHED)/$(1) && mkdir -p $$(FETCHED)/$(1)
	cd $$(FETCHED)/$(1) && { apt-get -qq download $(3) || { echo "make check: Debian's lists may be old: apt-get update" >&2; exit 1; }; } && dpkg-deb -x $(3)_*.deb .
	rm $$(FETCHED)/$(1)/$(3)_*.deb
	touch $$@
endef
