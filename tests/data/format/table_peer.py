"""Tables written by the csv module of Python, for tests/data/format/table.c.

    table_peer.py FOLDER    tNN.csv, and tNN.bin with its content: counts of
                            columns and rows (int32), then each field, header
                            first, as its bytes and a 0
"""
import csv
import io
import random
import struct
import sys

rng = random.Random(7)
letters = "abc XYZ019.-_/" + ",;\t\"'\n" + "äß€𝄞"


def field(letters):
    kind = rng.randrange(4)
    if kind == 0:
        return repr(rng.uniform(-1e3, 1e3))
    if kind == 1:
        return str(rng.randrange(-10**6, 10**6))
    return "".join(rng.choice(letters) for _ in range(rng.randrange(12)))


for number in range(60):
    # a carriage return is only quoted if lines end in one
    end = ["\n", "\r\n"][number // 3 % 2]
    text = letters + end
    columns, rows = rng.randrange(2, 9), rng.randrange(1, 40)
    table = [["c%d %s" % (k, field(text)) for k in range(columns)]]
    table += [[field(text) for _ in range(columns)] for _ in range(rows)]
    out = io.StringIO()
    writer = csv.writer(out, delimiter=",;\t"[number % 3],
                        lineterminator=end,
                        quoting=[csv.QUOTE_MINIMAL, csv.QUOTE_ALL,
                                 csv.QUOTE_NONNUMERIC][number // 6 % 3])
    writer.writerows(table)
    data = out.getvalue()
    if number % 5 == 0:
        data = "\ufeff" + data
    if number % 7 == 0:
        data = data.rstrip("\r\n") if not table[-1][-1].endswith(
            ("\r", "\n")) and table[-1][-1] else data
    path = "%s/t%02d" % (sys.argv[1], number)
    with open(path + ".csv", "wb") as out:
        out.write(data.encode())
    with open(path + ".bin", "wb") as out:
        out.write(struct.pack("<2i", columns, rows))
        for row in table:
            for value in row:
                out.write(value.encode() + b"\0")
