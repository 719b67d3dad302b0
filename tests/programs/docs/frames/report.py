import dlock


def write_report(fence):
    if not isinstance(fence, int):
        raise TypeError(fence)


