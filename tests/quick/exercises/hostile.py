"""Cells of notebooks that mean harm, by what they try.

OUTSIDE is a folder that isn't theirs, with `a.txt`, `tree/b.txt` and `empty/` in it;
CLASS the one with the graded notebooks. After its cells, each notebook has a right
answer to `pipeline/bubble`, unless its own is what is hostile.
"""

from __future__ import annotations

RIGHT = "def my_bubble(p, m):\n    return (p - 1) / (m + p - 1)"
OPENED = "import os\nfolder = os.open('OUTSIDE', os.O_RDONLY)\n"
IN_C = "import ctypes\nc = ctypes.CDLL(None)\n"
FORK = "import ctypes, os, time\nfork = ctypes.PyDLL(None).fork\n"
STAY = """os.setsid()
    ctypes.CDLL(None).prctl(15, b'MARK', 0, 0, 0)
    time.sleep(600)"""

# What it does to files, processes or its own run, before the right answer.
CELLS = {
    "removes a tree": "import shutil\nshutil.rmtree('OUTSIDE/tree')",
    "removes a tree, Path": "import shutil, pathlib\n"
    "shutil.rmtree(pathlib.Path('OUTSIDE/tree'))",
    "removes the class": "import shutil\nshutil.rmtree('CLASS', ignore_errors=True)",
    "removes by folder": f"{OPENED}os.remove('a.txt', dir_fd=folder)",
    "cuts by folder": f"{OPENED}os.open('a.txt', os.O_TRUNC | 1, dir_fd=folder)",
    "renames by folder": f"{OPENED}os.rename('a.txt', 'b', src_dir_fd=folder)",
    "rmdir by folder": f"{OPENED}os.rmdir('empty', dir_fd=folder)",
    "changes folder": "import os\nos.chdir('OUTSIDE')\nos.remove('a.txt')",
    "changes by number": f"{OPENED}os.fchdir(folder)\nos.remove('a.txt')",
    "writes": "open('OUTSIDE/a.txt', 'w').write('x')",
    "appends": "open('OUTSIDE/a.txt', 'a').write('x')",
    "makes": "open('OUTSIDE/new.txt', 'x').write('x')",
    "makes a folder": "import os\nos.makedirs('OUTSIDE/x/y')",
    "moves": "import shutil\nshutil.move('OUTSIDE/a.txt', 'mine')",
    "copies over": "import shutil\nopen('x', 'w').close()\n"
    "shutil.copyfile('x', 'OUTSIDE/a.txt')",
    "links": "import os\nos.symlink('OUTSIDE/a.txt', 'l')\nopen('l', 'w').write('x')",
    "hard link": "import os\nos.link('OUTSIDE/a.txt', 'l')\nopen('l', 'w').write('x')",
    "chmod": "import os\nos.chmod('OUTSIDE/a.txt', 0)",
    "truncates": "import os\nos.truncate('OUTSIDE/a.txt', 0)",
    "temporary": "import tempfile\ntempfile.mkstemp(dir='OUTSIDE')",
    "sqlite": "import sqlite3\nx = sqlite3.connect('OUTSIDE/new.db')\n"
    "x.execute('create table a(b)')\nx.commit()",
    "memory map": "import mmap, os\nx = os.open('OUTSIDE/a.txt', os.O_RDWR)\n"
    "mmap.mmap(x, 1)[0] = 0",
    "numpy": "import numpy as np\nnp.save('OUTSIDE/new.npy', [1])",
    "C removes": f"{IN_C}c.unlink(b'OUTSIDE/a.txt')",
    "C writes": f"{IN_C}f = c.open(b'OUTSIDE/a.txt', 1)\nc.write(f, b'x', 1)",
    "C cuts": f"{IN_C}c.truncate(b'OUTSIDE/a.txt', 0)",
    "C renames": f"{IN_C}c.rename(b'OUTSIDE/a.txt', b'OUTSIDE/b.txt')",
    "C system": f"{IN_C}c.system(b'rm -rf OUTSIDE/*')",
    "reads others": "import glob\nx = [open(f).read() for f in glob.glob('CLASS/*')]",
    "shell": "import os\nos.system('rm -rf OUTSIDE/tree')",
    "magic": "!rm -rf OUTSIDE/tree",
    "subprocess": "import subprocess\nsubprocess.run(['rm', '-r', 'OUTSIDE/tree'])",
    "spawn": "import multiprocessing as m\n"
    "m.get_context('spawn').Process(target=print).start()",
    "forks and stays": f"{FORK}if fork() == 0:\n    {STAY}",
    "forks twice": f"{FORK}if fork() == 0:\n    fork()\n    fork()\n    {STAY}",
    "forks many": f"{FORK}for _ in range(20):\n  if fork() == 0:\n    {STAY}",
    "C starts": f"{IN_C}c.system(b'(exec -a MARK sleep 600) &')",
    "thread stays": "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(600,)).start()",
    "at exit": "import atexit, time\natexit.register(time.sleep, 600)",
    "kills its parent": "import os\nos.kill(os.getppid(), 9)",
    "C kills its parent": f"{IN_C}c.kill(c.getppid(), 9)",
    "connects": "import socket\nsocket.create_connection(('127.0.0.1', 22), 2)",
    "exits": "import os\nos._exit(0)",
    "raises SystemExit": "raise SystemExit",
    "interrupts": "raise KeyboardInterrupt",
    "crashes": f"{IN_C}c.strlen(0)",
    "loops": "while True:\n    pass",
    "swallows alarms": "while True:\n    try:\n        while True:\n            pass\n"
    "    except BaseException:\n        pass",
    "blocks alarms": "import signal, time\nsignal.signal(14, signal.SIG_IGN)\n"
    "time.sleep(600)",
    "eats memory": "x = b'x' * 10**11",
    "fills the disk": "f = open('big', 'wb')\nwhile True:\n    f.write(b'x' * 10**7)",
    "half a letter": 'raise ValueError("\\ud800")',
    "error that can't speak": "class E(Exception):\n    def __str__(self):\n"
    "        raise E\nraise E",
    "writes to its pipe": "import os\nfor fd in range(3, 30):\n    try:\n"
    "        os.write(fd, b'{\"ready\": true}\\n' * 9)\n    except OSError:\n"
    "        pass",
    "closes all": "import os\nos.closerange(3, 99)",
    "patches": "import manygpu.exercises.checking as c, json\n"
    "c.called = c.tried = lambda *_: True\njson.dumps = lambda *_, **__: 'x'",
}  # fmt: skip
# What its function returns is the harm: no point for any of these.
ANSWERS = {
    "long text": "return 'x' * 900000",
    "long list": "return [0] * 10**6",
    "never ends": "while True: pass",
    "dies": "__import__('os')._exit(1)",
    "infinite": "return float('inf')",
    "NaN": "return float('nan')",
    "itself": "x = []; x.append(x); return x",
    "huge number": "return 10 ** 5000",
    "text": "return '0.5'",
    "equal": "return type('E', (float,), {'__eq__': lambda *_: True})(2)",
}
CELLS_OF = {
    **{name: [cell, RIGHT] for name, cell in CELLS.items()},
    **{name: [f"def my_bubble(p, m):\n    {code}"] for name, code in ANSWERS.items()},
}
