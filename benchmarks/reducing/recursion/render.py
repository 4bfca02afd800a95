"""Places the nodes of a scene and prints a bounding box."""

import argparse
import ctypes
import json
import logging
import os
import sys

LIMITS = {"width": 640, "height": 480, "depth": 64, "margin": 8}

log = logging.getLogger("render")


class Node(ctypes.Structure):
    """As the library has it."""


Node._fields_ = [("parent", ctypes.POINTER(Node)), ("x", ctypes.c_double), ("y", ctypes.c_double)]


class SceneError(ValueError):
    """The file is not what it should be."""


class Scene:
    def __init__(self, library, limits):
        self.library = library
        self.limits = limits
        self.nodes = {}
        self.names = []
        self.boxes = []

    def add(self, name, x=0.0, y=0.0):
        if name in self.nodes:
            raise SceneError(f"{name} is there twice")
        self.nodes[name] = Node(None, x, y)
        self.names.append(name)

    def link(self, name, parent):
        if parent not in self.nodes:
            log.warning("%s has no parent %s", name, parent)
            return
        self.nodes[name].parent = ctypes.pointer(self.nodes[parent])

    def position(self, name):
        node = self.nodes[name]
        x = self.library.position(ctypes.byref(node), 0)
        y = self.library.position(ctypes.byref(node), 1)
        return x, y

    def clipped(self, x, y):
        margin = self.limits["margin"]
        x = max(margin, min(self.limits["width"] - margin, x))
        y = max(margin, min(self.limits["height"] - margin, y))
        return x, y

    def place(self):
        for name in self.names:
            x, y = self.clipped(*self.position(name))
            self.boxes.append((name, x, y, x + 1, y + 1))
            log.debug("%s at %f, %f", name, x, y)


def load_library():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "native.so")
    library = ctypes.CDLL(path)
    library.position.argtypes = [ctypes.POINTER(Node), ctypes.c_int]
    library.position.restype = ctypes.c_double
    return library


def read_scene(path, library):
    with open(path) as file:
        data = json.load(file)
    if data.get("version") != 2:
        raise SceneError("another version")
    scene = Scene(library, {**LIMITS, **data.get("limits", {})})
    for entry in data["nodes"]:
        scene.add(entry["name"], entry.get("x", 0.0), entry.get("y", 0.0))
    for entry in data["nodes"]:
        if "parent" in entry:
            scene.link(entry["name"], entry["parent"])
    return scene


def bounds(boxes):
    left = min(box[1] for box in boxes)
    top = min(box[2] for box in boxes)
    right = max(box[3] for box in boxes)
    bottom = max(box[4] for box in boxes)
    return left, top, right, bottom


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scene", nargs="?", default="scene.json")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args(arguments)
    try:
        scene = read_scene(options.scene, load_library())
    except (OSError, SceneError) as error:
        print(error, file=sys.stderr)
        return 1
    scene.place()
    if not options.quiet:
        print("bounds", bounds(scene.boxes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
