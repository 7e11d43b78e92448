"""LLVM text of the runtime that generated code calls: clocks of pipes, definedness of UB, bounds
of GM. It is compiled once a process.

Everything here runs for each access to UB, thousands of times a program; what is rare (a finding,
a library call) goes back to Python through one callback.
"""

from __future__ import annotations

from ascendport.simulator.layout import (
    BLOCK,
    EVENTS,
    HAS_UNDEFINED,
    OUT_OF_UB,
    TENSOR_BIAS,
    TENSOR_SHIFT,
    Pipe,
    Signal,
    Slot,
)

ROLES = {"read": 1, "write": 2, "update": 3, "scratch": 4}
"""Role of an operand in UB → its number in a call's table."""
SCRATCH = ROLES["scratch"]
_WRITTEN = sum(1 << ROLES[role] for role in ("write", "update", "scratch"))
_READ = sum(1 << ROLES[role] for role in ("read", "update"))

READ, CHECK_WRITE, CHECK_SCRATCH, MARK_WRITE, CLEAR, SPOIL = range(6)
"""Modes of `touch`: a read; is a write allowed; the same for a scratch buffer, whose accesses on
its own pipe the library orders; note a write; and call its bytes defined; and call them
undefined."""

CALLBACK = "i32 (i64, i64, i64, i64)"


def slot(result: str, which: Slot, kind: str = "i64") -> str:
    """Loads a word of the state block."""
    return (
        f"  {result}.p = getelementptr i64, ptr %m, i64 {int(which)}\n"
        f"  {result} = load {kind}, ptr {result}.p\n"
    )


def _signal(result: str, signal: Signal, site: str, first: str, second: str) -> str:
    return f"  {result} = call i32 %cb(i64 {int(signal)}, i64 {site}, i64 {first}, i64 {second})\n"


def _word_of(prefix: str) -> str:
    """``<prefix>word``: the word of the record buffer that `%words` points to."""
    return (
        slot(f"{prefix}buf", Slot.BUFFER)
        + f"  {prefix}words = ptrtoint ptr %words to i64\n"
        + f"  {prefix}off = sub i64 {prefix}words, {prefix}buf\n"
        + f"  {prefix}word = lshr i64 {prefix}off, 3\n"
    )


# One run of bytes of UB, blocks [first, last).
_RUN = f"""
define internal i64 @touch_run(ptr %m, i64 %pipe, i64 %mode, i64 %site, i64 %at,
                               i64 %bits) noinline {{
entry:
  %lo = ashr i64 %at, 3
  %end = add i64 %at, %bits
  %end7 = add i64 %end, 7
  %hi = ashr i64 %end7, 3
{slot("%size", Slot.UB_BYTES)}
  %over = icmp ugt i64 %hi, %size
  %under = icmp slt i64 %lo, 0
  %bad = or i1 %over, %under
  br i1 %bad, label %outside, label %inside
outside:
  ret i64 {OUT_OF_UB}
inside:
{slot("%w", Slot.WRITES, "ptr")}
{slot("%r", Slot.READS, "ptr")}
{slot("%ws", Slot.WRITE_SITE, "ptr")}
{slot("%rs", Slot.READ_SITE, "ptr")}
{slot("%ck", Slot.CLOCKS, "ptr")}
{slot("%sh", Slot.SHADOW, "ptr")}
  %knows.p = getelementptr <4 x i32>, ptr %ck, i64 %pipe
  %knows = load <4 x i32>, ptr %knows.p, align 4
  %own.i = add i64 %pipe, 16
  %own.p = getelementptr i32, ptr %ck, i64 %own.i
  %own = load i32, ptr %own.p
  %first = lshr i64 %lo, 5
  %hi31 = add i64 %hi, {BLOCK - 1}
  %last = lshr i64 %hi31, 5
  %site32 = trunc i64 %site to i32
  %some = icmp ult i64 %first, %last
  br i1 %some, label %choose, label %nothing
nothing:
  ret i64 0
choose:
  switch i64 %mode, label %mark [
    i64 {READ}, label %read
    i64 {CHECK_WRITE}, label %check.enter
    i64 {CHECK_SCRATCH}, label %check.enter
  ]

read:
  %rb = phi i64 [ %first, %choose ], [ %rb1, %read ]
  %racc = phi <4 x i1> [ zeroinitializer, %choose ], [ %racc1, %read ]
  %rwp = getelementptr <4 x i32>, ptr %w, i64 %rb
  %rwv = load <4 x i32>, ptr %rwp, align 4
  %rc = icmp sgt <4 x i32> %rwv, %knows
  %racc1 = or <4 x i1> %racc, %rc
  %rri = mul i64 %rb, 4
  %rri1 = add i64 %rri, %pipe
  %rrp = getelementptr i32, ptr %r, i64 %rri1
  store i32 %own, ptr %rrp
  %rsp = getelementptr i32, ptr %rs, i64 %rri1
  store i32 %site32, ptr %rsp
  %rb1 = add i64 %rb, 1
  %rmore = icmp ult i64 %rb1, %last
  br i1 %rmore, label %read, label %scan.enter
scan.enter:
  br label %scan
scan:
  %si = phi i64 [ %lo, %scan.enter ], [ %si1, %scan ]
  %sacc = phi i8 [ 0, %scan.enter ], [ %sacc1, %scan ]
  %sp = getelementptr i8, ptr %sh, i64 %si
  %sv = load i8, ptr %sp
  %sacc1 = or i8 %sacc, %sv
  %si1 = add i64 %si, 1
  %smore = icmp ult i64 %si1, %hi
  br i1 %smore, label %scan, label %read.end
read.end:
  %rmask4 = bitcast <4 x i1> %racc1 to i4
  %rmask = zext i4 %rmask4 to i64
  %su = icmp ne i8 %sacc1, 0
  %sbit = select i1 %su, i64 {HAS_UNDEFINED}, i64 0
  %rres = or i64 %rmask, %sbit
  ret i64 %rres

check.enter:
  br label %check
check:
  %cb0 = phi i64 [ %first, %check.enter ], [ %cb1, %check ]
  %cwacc = phi <4 x i1> [ zeroinitializer, %check.enter ], [ %cwacc1, %check ]
  %cracc = phi <4 x i1> [ zeroinitializer, %check.enter ], [ %cracc1, %check ]
  %cwp = getelementptr <4 x i32>, ptr %w, i64 %cb0
  %cwv = load <4 x i32>, ptr %cwp, align 4
  %cwc = icmp sgt <4 x i32> %cwv, %knows
  %cwacc1 = or <4 x i1> %cwacc, %cwc
  %crp = getelementptr <4 x i32>, ptr %r, i64 %cb0
  %crv = load <4 x i32>, ptr %crp, align 4
  %crc = icmp sgt <4 x i32> %crv, %knows
  %cracc1 = or <4 x i1> %cracc, %crc
  %cb1 = add i64 %cb0, 1
  %cmore = icmp ult i64 %cb1, %last
  br i1 %cmore, label %check, label %check.end
check.end:
  %cw4 = bitcast <4 x i1> %cwacc1 to i4
  %cw = zext i4 %cw4 to i64
  %cr4 = bitcast <4 x i1> %cracc1 to i4
  %cr = zext i4 %cr4 to i64
  %crs = shl i64 %cr, 4
  ; What the scalar unit has read, it has read before it issues anything later.
  %crs1 = and i64 %crs, -17
  %call = or i64 %cw, %crs1
  %own2 = shl i64 17, %pipe
  %others = xor i64 %own2, -1
  %isscratch = icmp eq i64 %mode, {CHECK_SCRATCH}
  %keep = select i1 %isscratch, i64 %others, i64 -1
  %cres = and i64 %call, %keep
  ret i64 %cres

mark:
  %mb = phi i64 [ %first, %choose ], [ %mb1, %mark ]
  %mi = mul i64 %mb, 4
  %mi1 = add i64 %mi, %pipe
  %mp = getelementptr i32, ptr %w, i64 %mi1
  store i32 %own, ptr %mp
  %msp = getelementptr i32, ptr %ws, i64 %mb
  store i32 %site32, ptr %msp
  %mb1 = add i64 %mb, 1
  %mmore = icmp ult i64 %mb1, %last
  br i1 %mmore, label %mark, label %mark.end
mark.end:
  %plain = icmp eq i64 %mode, {MARK_WRITE}
  br i1 %plain, label %done, label %fill.enter
fill.enter:
  %spoil = icmp eq i64 %mode, {SPOIL}
  %with = select i1 %spoil, i8 -1, i8 0
  %from = getelementptr i8, ptr %sh, i64 %lo
  %count = sub i64 %hi, %lo
  call void @llvm.memset.p0.i64(ptr %from, i8 %with, i64 %count, i1 false)
  br label %done
done:
  ret i64 0
}}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""

# A strided view: runs where the last axis is dense, else element by element.
_TOUCH = f"""
define internal i64 @touch(ptr %m, i64 %pipe, i64 %mode, i64 %site, i64 %at, ptr %sizes,
                           ptr %strides, i64 %rank, i64 %bits) noinline {{
entry:
  %scalar = icmp eq i64 %rank, 0
  br i1 %scalar, label %one, label %axis
one:
  %onev = call i64 @touch_run(ptr %m, i64 %pipe, i64 %mode, i64 %site, i64 %at, i64 %bits)
  ret i64 %onev
axis:
  %n = load i64, ptr %sizes
  %s = load i64, ptr %strides
  %none = icmp sle i64 %n, 0
  br i1 %none, label %empty, label %some
empty:
  ret i64 0
some:
  ; More elements than UB has bits: it cannot fit, and walking it would take for ever.
  %huge = icmp ugt i64 %n, {1 << 24}
  br i1 %huge, label %beyond, label %fits
beyond:
  ret i64 {OUT_OF_UB}
fits:
  %last = icmp eq i64 %rank, 1
  %dense = icmp eq i64 %s, 1
  %run = and i1 %last, %dense
  br i1 %run, label %whole, label %walk
whole:
  %all = mul i64 %n, %bits
  %wholev = call i64 @touch_run(ptr %m, i64 %pipe, i64 %mode, i64 %site, i64 %at, i64 %all)
  ret i64 %wholev
walk:
  %step = mul i64 %s, %bits
  %sizes1 = getelementptr i64, ptr %sizes, i64 1
  %strides1 = getelementptr i64, ptr %strides, i64 1
  %rank1 = sub i64 %rank, 1
  br label %loop
loop:
  %i = phi i64 [ 0, %walk ], [ %i1, %loop ]
  %p = phi i64 [ %at, %walk ], [ %p1, %loop ]
  %acc = phi i64 [ 0, %walk ], [ %acc1, %loop ]
  %v = call i64 @touch(ptr %m, i64 %pipe, i64 %mode, i64 %site, i64 %p, ptr %sizes1,
                       ptr %strides1, i64 %rank1, i64 %bits)
  %acc1 = or i64 %acc, %v
  %p1 = add i64 %p, %step
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %end
end:
  ret i64 %acc1
}}
"""

# A vector or DMA operand: touch it, and report what is wrong. `%words`: address word, sizes,
# strides. Returns the touch bits; bit 62 is set where the callback asks to stop.
_OPERAND = f"""
define internal i64 @operand(ptr %m, ptr %cb, i64 %pipe, i64 %mode, i64 %site, i64 %which,
                             ptr %words, i64 %rank, i64 %bits) noinline {{
entry:
  %a = load i64, ptr %words
  %packed = icmp eq i64 %bits, 1
  %a8 = mul i64 %a, 8
  %at = select i1 %packed, i64 %a, i64 %a8
  %sizes = getelementptr i64, ptr %words, i64 1
  %skip = add i64 %rank, 1
  %strides = getelementptr i64, ptr %words, i64 %skip
  %v = call i64 @touch(ptr %m, i64 %pipe, i64 %mode, i64 %site, i64 %at, ptr %sizes,
                       ptr %strides, i64 %rank, i64 %bits)
  %out = and i64 %v, {OUT_OF_UB}
  %isout = icmp ne i64 %out, 0
  br i1 %isout, label %range, label %order
range:
{_word_of("%r")}{_signal("%rr", Signal.UB_RANGE, "%site", "%which", "%rword")}
  br label %report.end
order:
  %mask = and i64 %v, 255
  %clash = icmp ne i64 %mask, 0
  br i1 %clash, label %hazard, label %fine
hazard:
  %w16 = shl i64 %which, 16
  %info = or i64 %w16, %mask
{_word_of("%h")}{_signal("%hr", Signal.HAZARD, "%site", "%info", "%hword")}
  br label %report.end
report.end:
  %code = phi i32 [ %rr, %range ], [ %hr, %hazard ]
  %stop = icmp ne i32 %code, 0
  %stopbit = select i1 %stop, i64 {1 << 62}, i64 0
  %res = or i64 %v, %stopbit
  ret i64 %res
fine:
  ret i64 %v
}}
"""

# A scalar access to UB. Returns 1 where it may go on, 0 where it lies outside UB, -1 to stop.
_SCALAR = f"""
define i64 @as_scalar(ptr %m, ptr %cb, i64 %write, i64 %site, i64 %address, i64 %bytes) {{
entry:
{slot("%size", Slot.UB_BYTES)}
  %room = sub i64 %size, %bytes
  %bad = icmp ugt i64 %address, %room
  br i1 %bad, label %slow, label %inside
inside:
{slot("%w", Slot.WRITES, "ptr")}
{slot("%r", Slot.READS, "ptr")}
{slot("%ck", Slot.CLOCKS, "ptr")}
  %knows = load <4 x i32>, ptr %ck, align 4
  %own.p = getelementptr i32, ptr %ck, i64 16
  %own = load i32, ptr %own.p
  %block = lshr i64 %address, 5
  %wp = getelementptr <4 x i32>, ptr %w, i64 %block
  %wv = load <4 x i32>, ptr %wp, align 4
  %wc = icmp sgt <4 x i32> %wv, %knows
  %w4 = bitcast <4 x i1> %wc to i4
  %rp = getelementptr <4 x i32>, ptr %r, i64 %block
  %iswrite = icmp ne i64 %write, 0
  br i1 %iswrite, label %writing, label %reading
writing:
  %rv = load <4 x i32>, ptr %rp, align 4
  %rc = icmp sgt <4 x i32> %rv, %knows
  %r4 = bitcast <4 x i1> %rc to i4
  %any4 = or i4 %w4, %r4
  %clash = icmp ne i4 %any4, 0
  br i1 %clash, label %slow, label %note.write
note.write:
  store i32 %own, ptr %wp
{slot("%ws", Slot.WRITE_SITE, "ptr")}
  %wsp = getelementptr i32, ptr %ws, i64 %block
  %site32 = trunc i64 %site to i32
  store i32 %site32, ptr %wsp
  ret i64 1
reading:
  %rclash = icmp ne i4 %w4, 0
  br i1 %rclash, label %slow, label %note.read
note.read:
  store i32 %own, ptr %rp
{slot("%rs", Slot.READ_SITE, "ptr")}
  %block4 = mul i64 %block, 4
  %rsp = getelementptr i32, ptr %rs, i64 %block4
  %rsite32 = trunc i64 %site to i32
  store i32 %rsite32, ptr %rsp
  ret i64 1
slow:
  %s = call i64 @scalar_slow(ptr %m, ptr %cb, i64 %write, i64 %site, i64 %address, i64 %bytes)
  ret i64 %s
}}

define internal i64 @scalar_slow(ptr %m, ptr %cb, i64 %write, i64 %site, i64 %address,
                                 i64 %bytes) noinline {{
entry:
  %at = mul i64 %address, 8
  %bits = mul i64 %bytes, 8
  %iswrite = icmp ne i64 %write, 0
  %mode = select i1 %iswrite, i64 {CHECK_WRITE}, i64 {READ}
  %v = call i64 @touch_run(ptr %m, i64 {int(Pipe.S)}, i64 %mode, i64 %site, i64 %at, i64 %bits)
  %out = and i64 %v, {OUT_OF_UB}
  %isout = icmp ne i64 %out, 0
  br i1 %isout, label %range, label %order
range:
{_signal("%rr", Signal.UB_RANGE, "%site", "-1", "%address")}
  %rstop = icmp ne i32 %rr, 0
  %rres = select i1 %rstop, i64 -1, i64 0
  ret i64 %rres
order:
  %mask = and i64 %v, 255
  %info = or i64 %mask, -65536
{_signal("%hr", Signal.HAZARD, "%site", "%info", "%address")}
  %hstop = icmp ne i32 %hr, 0
  %hres = select i1 %hstop, i64 -1, i64 1
  br i1 %iswrite, label %mark, label %end
mark:
  %z = call i64 @touch_run(ptr %m, i64 {int(Pipe.S)}, i64 {MARK_WRITE}, i64 %site, i64 %at,
                           i64 %bits)
  br label %end
end:
  ret i64 %hres
}}
"""

# A scalar access to GM: the host's address of the bytes, or null. `%write` carries the flags.
_GM = f"""
define ptr @as_gm(ptr %m, ptr %cb, i64 %write, i64 %site, i64 %address, i64 %bytes,
                               ptr %stop) {{
entry:
{slot("%tensors", Slot.TENSORS, "ptr")}
  %id = lshr i64 %address, {TENSOR_SHIFT}
  %low = and i64 %address, {(1 << TENSOR_SHIFT) - 1}
  %byte = sub i64 %low, {TENSOR_BIAS}
  %row = mul i64 %id, 4
  %tp = getelementptr i64, ptr %tensors, i64 %row
  %host = load i64, ptr %tp
  %tp1 = getelementptr i64, ptr %tp, i64 1
  %extent = load i64, ptr %tp1
  %end = add i64 %byte, %bytes
  %neg = icmp slt i64 %byte, 0
  %far = icmp sgt i64 %end, %extent
  %bad0 = or i1 %neg, %far
  br i1 %bad0, label %slow, label %rows
rows:
  %tp3 = getelementptr i64, ptr %tp, i64 3
  %distance = load i64, ptr %tp3
  %gapless = icmp eq i64 %distance, 0
  br i1 %gapless, label %fine, label %gaps
gaps:
  %tp2 = getelementptr i64, ptr %tp, i64 2
  %width = load i64, ptr %tp2
  %in = urem i64 %byte, %distance
  %inend = add i64 %in, %bytes
  %gap = icmp ugt i64 %inend, %width
  br i1 %gap, label %slow, label %fine
slow:
  %w32 = shl i64 %write, 32
  %info = or i64 %bytes, %w32
{_signal("%rr", Signal.GM_RANGE, "%site", "%address", "%info")}
  store i32 %rr, ptr %stop
  ret ptr null
fine:
{slot("%flags0", Slot.ACCESS)}
  %flags = or i64 %flags0, %write
  %aend = add i64 %address, %bytes
{slot("%log", Slot.LOG, "ptr")}
{slot("%count", Slot.LOG_COUNT)}
  %has = icmp ugt i64 %count, 0
  br i1 %has, label %merge, label %append
merge:
  %pc = sub i64 %count, 1
  %pw = mul i64 %pc, 4
  %pp = getelementptr i64, ptr %log, i64 %pw
  %pp1 = getelementptr i64, ptr %pp, i64 1
  %pp2 = getelementptr i64, ptr %pp, i64 2
  %pp3 = getelementptr i64, ptr %pp, i64 3
  %pend = load i64, ptr %pp1
  %psite = load i64, ptr %pp2
  %pflags = load i64, ptr %pp3
  %c1 = icmp eq i64 %pend, %address
  %c2 = icmp eq i64 %psite, %site
  %c3 = icmp eq i64 %pflags, %flags
  %c12 = and i1 %c1, %c2
  %c123 = and i1 %c12, %c3
  br i1 %c123, label %extend, label %append
extend:
  store i64 %aend, ptr %pp1
  br label %ok
append:
  %aw = mul i64 %count, 4
  %ap = getelementptr i64, ptr %log, i64 %aw
  %ap1 = getelementptr i64, ptr %ap, i64 1
  %ap2 = getelementptr i64, ptr %ap, i64 2
  %ap3 = getelementptr i64, ptr %ap, i64 3
  store i64 %address, ptr %ap
  store i64 %aend, ptr %ap1
  store i64 %site, ptr %ap2
  store i64 %flags, ptr %ap3
  %count1 = add i64 %count, 1
  store i64 %count1, ptr %count.p
{slot("%most", Slot.LOG_LIMIT)}
  %full = icmp uge i64 %count1, %most
  br i1 %full, label %flush, label %ok
flush:
{_signal("%fr", Signal.LOG_FULL, "%site", "0", "0")}
  br label %ok
ok:
  %hostend = add i64 %host, %byte
  %res = inttoptr i64 %hostend to ptr
  ret ptr %res
}}
"""

# An address that is data, such as an entry of a table of pointers: where it lies in the tensors.
_POINTER = f"""
define i64 @as_pointer(ptr %m, i64 %value) {{
entry:
  %tagged = lshr i64 %value, {TENSOR_SHIFT}
  %ours = icmp ne i64 %tagged, 0
  br i1 %ours, label %same, label %search
same:
  ret i64 %value
search:
{slot("%tensors", Slot.TENSORS, "ptr")}
{slot("%count", Slot.TENSOR_COUNT)}
  br label %loop
loop:
  %i = phi i64 [ 1, %search ], [ %i1, %next ]
  %more = icmp ule i64 %i, %count
  br i1 %more, label %look, label %none
look:
  %row = mul i64 %i, 4
  %hp = getelementptr i64, ptr %tensors, i64 %row
  %host = load i64, ptr %hp
  %ep = getelementptr i64, ptr %hp, i64 1
  %extent = load i64, ptr %ep
  %byte = sub i64 %value, %host
  %hit = icmp ult i64 %byte, %extent
  br i1 %hit, label %found, label %next
next:
  %i1 = add i64 %i, 1
  br label %loop
found:
  %id = shl i64 %i, {TENSOR_SHIFT}
  %low = add i64 %byte, {TENSOR_BIAS}
  %address = or i64 %id, %low
  ret i64 %address
none:
  ret i64 {TENSOR_BIAS}
}}
"""

_INT_MAX = 2147483647

# How a flag operation starts: its record is written, its event's entry found. `%was`: is it set.
_EVENT = f"""\
  %rec = call ptr @as_record(ptr %m, i64 %site)
  %rec1 = getelementptr i64, ptr %rec, i64 1
  store i64 %e, ptr %rec1
  %adv = call i32 @advance(ptr %m, ptr %cb, i64 2)
{slot("%ck", Slot.CLOCKS, "ptr")}
{slot("%ev", Slot.EVENTS, "ptr")}
  %pair0 = mul i64 %a, 4
  %pair = add i64 %pair0, %b
  %key0 = mul i64 %pair, {EVENTS}
  %e7 = and i64 %e, {EVENTS - 1}
  %key = add i64 %key0, %e7
  %ew = mul i64 %key, 8
  %ep = getelementptr i32, ptr %ev, i64 %ew
  %was = load i32, ptr %ep
"""

_FLAGS = f"""
define i32 @as_set_flag(ptr %m, ptr %cb, i64 %site, i64 %a, i64 %b, i64 %e) {{
entry:
{_EVENT}  %twice = icmp ne i32 %was, 0
  br i1 %twice, label %report, label %go
report:
{_signal("%rr", Signal.EVENT_TWICE, "%site", "%e", "%key")}
  %stop = icmp ne i32 %rr, 0
  br i1 %stop, label %out, label %go
out:
  ret i32 1
go:
  store i32 1, ptr %ep
  %sp = getelementptr i32, ptr %ep, i64 1
  %site32 = trunc i64 %site to i32
  store i32 %site32, ptr %sp
  %kp = getelementptr <4 x i32>, ptr %ck, i64 %a
  %knows = load <4 x i32>, ptr %kp, align 4
  %own.i = add i64 %a, 16
  %own.p = getelementptr i32, ptr %ck, i64 %own.i
  %own = load i32, ptr %own.p
  %snap = insertelement <4 x i32> %knows, i32 %own, i64 %a
  %np = getelementptr i32, ptr %ep, i64 4
  store <4 x i32> %snap, ptr %np, align 4
  %next = add i32 %own, 1
  store i32 %next, ptr %own.p
  ret i32 %adv
}}

define i32 @as_wait_flag(ptr %m, ptr %cb, i64 %site, i64 %a, i64 %b, i64 %e) {{
entry:
{_EVENT}  %set = icmp ne i32 %was, 0
  br i1 %set, label %go, label %report
report:
{_signal("%rr", Signal.EVENT_MISSING, "%site", "%e", "%key")}
  ret i32 %rr
go:
  store i32 0, ptr %ep
  %np = getelementptr i32, ptr %ep, i64 4
  %snap = load <4 x i32>, ptr %np, align 4
  %kp = getelementptr <4 x i32>, ptr %ck, i64 %b
  %knows = load <4 x i32>, ptr %kp, align 4
  %less = icmp slt <4 x i32> %knows, %snap
  %new = select <4 x i1> %less, <4 x i32> %snap, <4 x i32> %knows
  store <4 x i32> %new, ptr %kp, align 4
  %onS = icmp eq i64 %b, {int(Pipe.S)}
  br i1 %onS, label %issue, label %end
issue:
  ; The scalar unit issues the instructions of all pipes in order: what it waited for is over
  ; before whatever it issues next, on any pipe. Its own stores are another matter.
  %past = insertelement <4 x i32> %snap, i32 0, i64 {int(Pipe.S)}
  br label %each
each:
  %q = phi i64 [ 1, %issue ], [ %q1, %each ]
  %qp = getelementptr <4 x i32>, ptr %ck, i64 %q
  %qk = load <4 x i32>, ptr %qp, align 4
  %ql = icmp slt <4 x i32> %qk, %past
  %qn = select <4 x i1> %ql, <4 x i32> %past, <4 x i32> %qk
  store <4 x i32> %qn, ptr %qp, align 4
  %q1 = add i64 %q, 1
  %qm = icmp ult i64 %q1, 4
  br i1 %qm, label %each, label %end
end:
  ret i32 %adv
}}

define i32 @as_barrier(ptr %m, ptr %cb, i64 %site, i64 %pipe) {{
entry:
  %rec = call ptr @as_record(ptr %m, i64 %site)
  %adv = call i32 @advance(ptr %m, ptr %cb, i64 1)
{slot("%ck", Slot.CLOCKS, "ptr")}
  %cp = getelementptr i32, ptr %ck, i64 16
  %clocks = load <4 x i32>, ptr %cp, align 4
  %all = icmp eq i64 %pipe, 4
  br i1 %all, label %every, label %single
every:
  %s = insertelement <4 x i32> %clocks, i32 {_INT_MAX}, i64 0
  store <4 x i32> %s, ptr %ck, align 4
  %k1 = getelementptr <4 x i32>, ptr %ck, i64 1
  store <4 x i32> %clocks, ptr %k1, align 4
  %k2 = getelementptr <4 x i32>, ptr %ck, i64 2
  store <4 x i32> %clocks, ptr %k2, align 4
  %k3 = getelementptr <4 x i32>, ptr %ck, i64 3
  store <4 x i32> %clocks, ptr %k3, align 4
  %next = add <4 x i32> %clocks, <i32 1, i32 1, i32 1, i32 1>
  store <4 x i32> %next, ptr %cp, align 4
  ret i32 %adv
single:
  %own.p = getelementptr i32, ptr %cp, i64 %pipe
  %own = load i32, ptr %own.p
  %isS = icmp eq i64 %pipe, 0
  %known = select i1 %isS, i32 {_INT_MAX}, i32 %own
  %ki = mul i64 %pipe, 5
  %kp = getelementptr i32, ptr %ck, i64 %ki
  store i32 %known, ptr %kp
  %own1 = add i32 %own, 1
  store i32 %own1, ptr %own.p
  ret i32 %adv
}}
"""

# Closes a record of `%words` words. Returns nonzero to stop.
_RECORD = f"""
define internal i32 @advance(ptr %m, ptr %cb, i64 %words) noinline {{
entry:
{slot("%cursor", Slot.CURSOR)}
{slot("%keep", Slot.TRACE)}
  %step = and i64 %words, %keep
  %next = add i64 %cursor, %step
  store i64 %next, ptr %cursor.p
{slot("%limit", Slot.LIMIT)}
  %full = icmp ugt i64 %next, %limit
  br i1 %full, label %flush, label %fine
flush:
{_signal("%rr", Signal.BUFFER_FULL, "0", "0", "0")}
  ret i32 %rr
fine:
  ret i32 0
}}
"""

_CALL = f"""
define ptr @as_record(ptr %m, i64 %site) {{
entry:
{slot("%buffer", Slot.BUFFER, "ptr")}
{slot("%cursor", Slot.CURSOR)}
  %record = getelementptr i64, ptr %buffer, i64 %cursor
  store i64 %site, ptr %record
  ret ptr %record
}}

define i32 @as_work(ptr %m, ptr %cb, i64 %site, i64 %runs) {{
entry:
  %record = call ptr @as_record(ptr %m, i64 %site)
  %place = getelementptr i64, ptr %record, i64 1
  store i64 %runs, ptr %place
  %code = call i32 @advance(ptr %m, ptr %cb, i64 2)
  ret i32 %code
}}

define internal i64 @phase(ptr %m, ptr %cb, i64 %pipe, i64 %mode, i64 %spoil, i64 %site,
                           ptr %record, ptr %table, i64 %count, i64 %roles) noinline {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %acc = phi i64 [ 0, %entry ], [ %acc1, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %end
look:
  %ep = getelementptr i64, ptr %table, i64 %i
  %e = load i64, ptr %ep
  %role = and i64 %e, 255
  %bit = shl i64 1, %role
  %hit = and i64 %bit, %roles
  %wanted = icmp ne i64 %hit, 0
  br i1 %wanted, label %do, label %skip
skip:
  br label %next
do:
  %e8 = lshr i64 %e, 8
  %word = and i64 %e8, 65535
  %e24 = lshr i64 %e, 24
  %rank = and i64 %e24, 255
  %bits = lshr i64 %e, 32
  %words = getelementptr i64, ptr %record, i64 %word
  %scratch = icmp eq i64 %role, {SCRATCH}
  %with = select i1 %scratch, i64 %spoil, i64 %mode
  %v = call i64 @operand(ptr %m, ptr %cb, i64 %pipe, i64 %with, i64 %site, i64 %i, ptr %words,
                         i64 %rank, i64 %bits)
  br label %next
next:
  %got = phi i64 [ 0, %skip ], [ %v, %do ]
  %acc1 = or i64 %acc, %got
  %i1 = add i64 %i, 1
  br label %loop
end:
  ret i64 %acc
}}

define i32 @as_call(ptr %m, ptr %cb, i64 %pipe, i64 %site, ptr %record, i64 %given, i64 %words,
                    ptr %table, i64 %count) {{
entry:
  %c = call i64 @phase(ptr %m, ptr %cb, i64 %pipe, i64 {CHECK_WRITE}, i64 {CHECK_SCRATCH},
                       i64 %site, ptr %record, ptr %table, i64 %count, i64 {_WRITTEN})
  %r = call i64 @phase(ptr %m, ptr %cb, i64 %pipe, i64 {READ}, i64 {READ}, i64 %site,
                       ptr %record, ptr %table, i64 %count, i64 {_READ})
  %cr = or i64 %c, %r
  %flags = or i64 %cr, %given
  %stop = icmp sge i64 %flags, {1 << 62}
  br i1 %stop, label %out, label %mark
out:
  ret i32 1
mark:
  %r200 = and i64 %r, {HAS_UNDEFINED}
  %some = or i64 %r200, %given
  %clean = icmp eq i64 %some, 0
  %mode = select i1 %clean, i64 {CLEAR}, i64 {MARK_WRITE}
  %w = call i64 @phase(ptr %m, ptr %cb, i64 %pipe, i64 %mode, i64 {SPOIL}, i64 %site,
                       ptr %record, ptr %table, i64 %count, i64 {_WRITTEN})
  %fp = getelementptr i64, ptr %record, i64 1
  store i64 %flags, ptr %fp
{slot("%cursor", Slot.CURSOR)}
{_signal("%code", Signal.CALL, "%site", "%cursor", "0")}
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %out, label %close
close:
  %adv = call i32 @advance(ptr %m, ptr %cb, i64 %words)
  ret i32 %adv
}}
"""

# fp16 and bf16 live in i16 words. Conversions round to nearest even; NaN stays NaN.
_FLOATS = """
define float @as_bf16_to_f32(i16 %x) {
  %w = zext i16 %x to i32
  %s = shl i32 %w, 16
  %f = bitcast i32 %s to float
  ret float %f
}

define i16 @as_f32_to_bf16(float %x) {
  %b = bitcast float %x to i32
  %nan = fcmp uno float %x, %x
  %up = lshr i32 %b, 16
  %odd = and i32 %up, 1
  %bias = add i32 %odd, 32767
  %r = add i32 %b, %bias
  %rs = lshr i32 %r, 16
  %quiet = or i32 %up, 64
  %v = select i1 %nan, i32 %quiet, i32 %rs
  %t = trunc i32 %v to i16
  ret i16 %t
}

define float @as_f16_to_f32(i16 %x) {
entry:
  %w = zext i16 %x to i32
  %sign0 = and i32 %w, 32768
  %sign = shl i32 %sign0, 16
  %mag = and i32 %w, 32767
  %shifted = shl i32 %mag, 13
  %special = icmp uge i32 %mag, 31744
  br i1 %special, label %inf, label %finite
inf:
  %ib = or i32 %shifted, 2139095040
  %ibs = or i32 %ib, %sign
  %if = bitcast i32 %ibs to float
  ret float %if
finite:
  %tiny = bitcast i32 %shifted to float
  %scaled = fmul float %tiny, 0x46F0000000000000
  %fb = bitcast float %scaled to i32
  %fbs = or i32 %fb, %sign
  %ff = bitcast i32 %fbs to float
  ret float %ff
}

define i16 @as_f32_to_f16(float %x) {
entry:
  %b = bitcast float %x to i32
  %sign0 = lshr i32 %b, 16
  %sign = and i32 %sign0, 32768
  %mag = and i32 %b, 2147483647
  %nan = icmp ugt i32 %mag, 2139095040
  br i1 %nan, label %isnan, label %number
isnan:
  %q = or i32 %sign, 32256
  %qt = trunc i32 %q to i16
  ret i16 %qt
number:
  %big = icmp uge i32 %mag, 1199570944
  br i1 %big, label %isinf, label %finite
isinf:
  %i = or i32 %sign, 31744
  %it = trunc i32 %i to i16
  ret i16 %it
finite:
  %small = icmp ult i32 %mag, 947912704
  br i1 %small, label %sub, label %normal
sub:
  %mf = bitcast i32 %mag to float
  %sum = fadd float %mf, 5.000000e-01
  %sb = bitcast float %sum to i32
  %sv = sub i32 %sb, 1056964608
  %ss = or i32 %sv, %sign
  %st = trunc i32 %ss to i16
  ret i16 %st
normal:
  %odd0 = lshr i32 %mag, 13
  %odd = and i32 %odd0, 1
  %n0 = add i32 %mag, -939520001
  %n1 = add i32 %n0, %odd
  %n2 = lshr i32 %n1, 13
  %ns = or i32 %n2, %sign
  %nt = trunc i32 %ns to i16
  ret i16 %nt
}
"""

RUNTIME = "\n".join(
    (_RUN, _TOUCH, _OPERAND, _SCALAR, _GM, _POINTER, _FLAGS, _RECORD, _CALL, _FLOATS)
).replace("call i32 %cb(", f"call {CALLBACK} %cb(")
"""Everything above, as LLVM text."""

EXPORTS = {
    "as_record": "ptr (ptr, i64)",
    "as_work": "i32 (ptr, ptr, i64, i64)",
    "as_call": "i32 (ptr, ptr, i64, i64, ptr, i64, i64, ptr, i64)",
    "as_set_flag": "i32 (ptr, ptr, i64, i64, i64, i64)",
    "as_wait_flag": "i32 (ptr, ptr, i64, i64, i64, i64)",
    "as_barrier": "i32 (ptr, ptr, i64, i64)",
    "as_scalar": "i64 (ptr, ptr, i64, i64, i64, i64)",
    "as_gm": "ptr (ptr, ptr, i64, i64, i64, i64, ptr)",
    "as_pointer": "i64 (ptr, i64)",
    "as_bf16_to_f32": "float (i16)",
    "as_f32_to_bf16": "i16 (float)",
    "as_f16_to_f32": "float (i16)",
    "as_f32_to_f16": "i16 (float)",
}
"""Functions that generated code calls, with their types."""


def operand_entry(role: str, word: int, rank: int, bits: int) -> int:
    """An operand's entry in the table of `as_call`."""
    return ROLES.get(role, 0) | word << 8 | rank << 24 | bits << 32
