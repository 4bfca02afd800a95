# make -j -B -f compile.mk COUNT=300 OUT=folder: COUNT compilations of a small source, as a build makes them.
SOURCE := $(dir $(lastword $(MAKEFILE_LIST)))unit.c
OBJECTS := $(patsubst %,$(OUT)/%.o,$(shell seq $(COUNT)))

all: $(OBJECTS)

$(OBJECTS): $(OUT)/%.o: $(SOURCE)
	$(CC) -O1 -DUNIT=unit_$* -c -o $@ $<

.PHONY: all
