"""The parts of a layer that are not products: norms, rotation, activations, attention's softmax.

All on float32 arrays of one token. What a number of `kind` means stands in layout.py.
"""

import math

import numpy as np

from llmcli.kernels.layout import (
    GELU,
    GELU_QUICK,
    GELU_TANH,
    HALVES,
    KEYS_TOGETHER,
    LAYER_NORM,
    NO_NORM,
    PAIRS,
    SILU,
)
from llmcli.kernels.tiles import mixed, times_panel
from llmcli.kernels.vectors import LANES
from llmcli.kernels.words import apart, exp, floats, inlined

_ONE, _TWO, _HALF = np.float32(1), np.float32(2), np.float32(0.5)
_ROOT_HALF = np.float32(1 / math.sqrt(2))
# sqrt(2 / pi) and the cubic term of the tanh approximation (arXiv 1606.08415).
_GELU_SCALE, _GELU_CUBE = np.float32(math.sqrt(2 / math.pi)), np.float32(0.044715)
_QUICK = np.float32(1.702)
_LOWEST = np.float32(-np.inf)


@inlined
def sigmoid(x):
    return _ONE / (_ONE + exp(-x))


@inlined
def tanh(x):
    return _ONE - _TWO / (exp(_TWO * x) + _ONE)


@inlined
def capped(x, cap):
    """cap * tanh(x / cap), exact near zero."""
    return cap * np.float32(math.tanh(x / cap))


@inlined
def norm(kind, weight, bias, offset, eps, x, y, start, stop):
    """y[start:stop] from x[start:stop]; weight and bias [stop - start] lie at addresses, or 0."""
    apart()
    count = stop - start
    if kind == NO_NORM:
        for i in range(start, stop):
            y[i] = x[i]
        return
    mean, squares = np.float32(0), np.float32(0)
    if kind == LAYER_NORM:
        for i in range(start, stop):
            mean += x[i]
        mean /= np.float32(count)
    for i in range(start, stop):
        centred = x[i] - mean
        squares += centred * centred
    scale = _ONE / np.sqrt(squares / np.float32(count) + eps)
    gain = floats(weight, count)
    if bias:
        shift = floats(bias, count)
        for i in range(count):
            y[start + i] = (x[start + i] - mean) * scale * (gain[i] + offset) + shift[i]
    else:
        for i in range(count):
            y[start + i] = (x[start + i] - mean) * scale * (gain[i] + offset)


@inlined
def rotate(kind, cos, sin, dim, x, start):
    """Turn the first `dim` of the numbers from x[start] on, in place.

    cos and sin [dim] are those of one position, the minus sign folded into the sine.
    """
    apart()
    if kind == HALVES:
        half = dim // 2
        for i in range(half):
            low, high = x[start + i], x[start + half + i]
            x[start + i] = low * cos[i] + high * sin[i]
            x[start + half + i] = high * cos[half + i] + low * sin[half + i]
    elif kind == PAIRS:
        for i in range(0, dim, 2):
            low, high = x[start + i], x[start + i + 1]
            x[start + i] = low * cos[i] + high * sin[i]
            x[start + i + 1] = high * cos[i + 1] + low * sin[i + 1]


@inlined
def activate(kind, gate, up, y, start, stop):
    """y[start:stop] = act(gate) * up, or act(gate) alone where `up` is empty."""
    apart()
    if kind == SILU:
        for i in range(start, stop):
            y[i] = gate[i] * sigmoid(gate[i])
    elif kind == GELU:
        for i in range(start, stop):
            y[i] = _HALF * gate[i] * (_ONE + np.float32(math.erf(gate[i] * _ROOT_HALF)))
    elif kind == GELU_TANH:
        for i in range(start, stop):
            x = gate[i]
            y[i] = _HALF * x * (_ONE + tanh(_GELU_SCALE * (x + _GELU_CUBE * x * x * x)))
    elif kind == GELU_QUICK:
        for i in range(start, stop):
            y[i] = gate[i] * sigmoid(_QUICK * gate[i])
    else:
        for i in range(start, stop):
            y[i] = gate[i] if not gate[i] < 0 else np.float32(0)
    if up.size:
        for i in range(start, stop):
            y[i] *= up[i]


@inlined
def weighed(scores, low, high, count, scale, cap, peak):
    """Scores low ... high become exp(score - peak), all else of `count` 0.

    Returns the new peak, what the sums so far shrink by, and the sum of these.
    """
    apart()
    for s in range(low, high):
        scores[s] *= scale
    if cap > 0:
        for s in range(low, high):
            scores[s] = capped(scores[s], cap)
    highest = peak
    for s in range(low, high):
        # A NaN becomes the peak, and with it all that follows.
        if not scores[s] <= highest:
            highest = scores[s]
    total = np.float32(0)
    for s in range(low, high):
        scores[s] = exp(scores[s] - highest)
    for s in range(low, high):
        total += scores[s]
    for s in range(low):
        scores[s] = 0
    for s in range(high, count):
        scores[s] = 0
    return highest, exp(peak - highest), total


@inlined
def attend(q, keys, values, first, last, group, dim, scale, cap, scores, out, peaks, sums):
    """What the keys first ... last add for one key-value head and its `group` of queries.

    q [group * dim]; keys and values [S * dim]; scores is room for group * (last - first) floats.
    Leaves sum(exp(s - peak) v) in out [group * dim], and peak and sum(exp(s - peak)) of each query.
    """
    apart()
    count = last - first
    for i in range(group * count):
        scores[i] = 0
    for i in range(group * dim):
        out[i] = 0
    at_scores, start = scores.ctypes.data, first * dim
    if dim % LANES == 0:
        at_keys, at_q = keys.ctypes.data + start * 4, q.ctypes.data
        times_panel(
            at_keys, dim * 4, count, at_q, dim * 4, group, at_scores, count * 4, dim // LANES
        )
    else:
        for head in range(group):
            for s in range(count):
                for i in range(dim):
                    scores[head * count + s] += q[head * dim + i] * keys[start + s * dim + i]
    for head in range(group):
        row = scores[head * count : (head + 1) * count]
        peaks[head], _, sums[head] = weighed(row, 0, count, count, scale, cap, _LOWEST)
    if dim % LANES == 0:
        at_out = out.ctypes.data
        # So many values at a time stay in a core's cache while their columns take turns.
        for s in range(0, count, KEYS_TOGETHER):
            some, here = min(KEYS_TOGETHER, count - s), values.ctypes.data + (start + s * dim) * 4
            mixed(at_scores + s * 4, count * 4, group, here, dim, some, at_out, dim * 4)
    else:
        for head in range(group):
            for s in range(count):
                weight = scores[head * count + s]
                for i in range(dim):
                    out[head * dim + i] += weight * values[start + s * dim + i]


@inlined
def merge(outs, width, peaks, sums, stride, parts, heads, dim, y):
    """The parts' results as one, into y [heads * dim].

    Addresses: outs [parts, width], peaks and sums [parts, stride].
    """
    apart()
    for head in range(heads):
        peak = _LOWEST
        for part in range(parts):
            at = part * stride * 4
            if floats(sums + at, heads)[head] != 0:
                own = floats(peaks + at, heads)[head]
                if not own <= peak:
                    peak = own
        total = np.float32(0)
        for i in range(head * dim, (head + 1) * dim):
            y[i] = 0
        for part in range(parts):
            at = part * stride * 4
            sum_ = floats(sums + at, heads)[head]
            if sum_ != 0:
                factor = exp(floats(peaks + at, heads)[head] - peak)
                total += factor * sum_
                mine = floats(outs + part * width * 4, heads * dim)
                for i in range(head * dim, (head + 1) * dim):
                    y[i] += factor * mine[i]
        for i in range(head * dim, (head + 1) * dim):
            y[i] /= total
