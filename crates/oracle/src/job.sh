# Functions for the jobs of one guest; those of md-oracle (md_wait, md_fill, md_crash, ...) are there too.
# A job has $D0 $D1 ... $DEVS $N, its array $MD with $MD_SYS in sysfs, its own $OUT, and $PATTERNS.
# Starting a program costs 0.1 s in the guest, Python over a second: builtins and small programs are used.

# put KEY VALUE: into the report
put() { printf '%s\t%s\n' "$1" "$2" >>"$OUT/values"; }

# put_sys KEY FILE: a value of the array's sysfs folder into the report
put_sys() { local v=; [ -e "$MD_SYS/$2" ] && read -r v <"$MD_SYS/$2"; put "$1" "$v"; }

# start [OPTION]... DEVICE...: assembles $MD; `--run` starts it degraded too
start() {
  echo "+ mdadm --assemble $MD $*" >>"$OUT/mdadm"
  mdadm --assemble "$MD" --config=none --run "$@" </dev/null >>"$OUT/mdadm" 2>&1 || return 3
  local v=; [ -e "$MD_SYS/array_state" ] && read -r v <"$MD_SYS/array_state"
  case $v in clear|inactive|'') return 3 ;; esac
}

# stop: stops $MD, whatever it is doing
stop() {
  local n=0
  until mdadm --stop "$MD" </dev/null >>"$OUT/mdadm" 2>&1; do
    n=$((n+1)); [ $n -lt 20 ] || return 3
    sleep 0.2
  done
}

# put_content KEY: size and hash of the array into the report as KEY.size_bytes and KEY.sha256
put_content() {
  local sectors sum
  read -r sectors <"/sys/block/${MD#/dev/}/size"
  put "$1.size_bytes" "$((sectors * 512))"
  sum=$(sha256sum "$MD") || { put "$1.sha256" unreadable; return 1; }
  put "$1.sha256" "${sum%% *}"
}

# fill SEED [OFFSET_BYTES LENGTH_BYTES]: writes the pattern, all of the array by default; durable afterwards.
# SEED must be named by the job, so that its pattern file is there.
fill() {
  local sectors offset=${2:-0} length=$3
  if [ -z "$length" ]; then
    read -r sectors <"/sys/block/${MD#/dev/}/size"
    length=$((sectors * 512 - offset))
  fi
  dd if="$PATTERNS/$1" of="$MD" bs=1M iflag=skip_bytes,count_bytes oflag=seek_bytes skip="$offset" seek="$offset" \
    count="$length" conv=notrunc,fsync status=none
}

# examine: metadata and bitmap of each member into the report's files
examine() {
  local i=0 d
  for d in $DEVS; do
    mdadm -E "$d" >"$OUT/examine.$i" 2>&1 || put "examine.$i" failed
    mdadm -X "$d" >"$OUT/bitmap.$i" 2>&1
    i=$((i+1))
  done
}

# scrub: `check`, waits, puts mismatch_cnt; levels without redundancy put an empty one
scrub() {
  if [ ! -e "$MD_SYS/sync_action" ]; then put mismatch_sectors ''; return 0; fi
  mdadm --readwrite "$MD" >>"$OUT/mdadm" 2>&1
  md_wait "$MD" || return 3
  echo check >"$MD_SYS/sync_action" || return 3
  md_wait "$MD" || return 3
  put_sys mismatch_sectors mismatch_cnt
}
