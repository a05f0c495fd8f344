"""python -m onnxquant: the installed program."""
import os
import subprocess
import sys
import sysconfig


def find():
    """The program, where pip put it: into the environment, or into the user's folder."""
    name = "onnxquant" + (".exe" if os.name == "nt" else "")
    schemes = sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")
    for scheme in schemes:
        path = os.path.join(sysconfig.get_path("scripts", scheme), name)
        if os.path.isfile(path):
            return path
    sys.exit("onnxquant: the program is not in the folder of scripts: install the package again with pip")


def main():
    path = find()
    if os.name == "nt":
        sys.exit(subprocess.call([path, *sys.argv[1:]]))
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
