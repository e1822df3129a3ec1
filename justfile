# Every need one word. Each only calls `cargo xtask WORD`, so all of it works without just.

# lists the words
default:
    @just --list --unsorted

# formatting, lints, and the rules of the house
check:
    cargo xtask check

# all tests; `just test NAME` runs those whose name contains it
test *ARGS:
    cargo xtask test {{ARGS}}

# what CI runs, nothing else
ci:
    cargo xtask ci

# the rules of the house alone: arrows, words, sizes, dead files, documents
tidy:
    cargo xtask tidy

# the simulator: `just sim --seeds 1000`, `just sim --seed 42 --trace`
sim *ARGS:
    cargo xtask sim {{ARGS}}

# real servers killed, real members cut off: `just kill --kills 300 --cuts 100 --seed 1`
kill *ARGS:
    cargo xtask kill {{ARGS}}

# damaged input for every parser: `just fuzz md-superblock --seconds 600`
fuzz *ARGS:
    cargo xtask fuzz {{ARGS}}

# IOPS, GB/s and CPU microseconds for each level
bench *ARGS:
    cargo xtask bench {{ARGS}}

# a flame graph of one path of the engine: `just flame raid5 null bitmap write 4096 32 random 3000000 > flame.svg`
flame *ARGS:
    @cargo xtask flame {{ARGS}}

# tables of on-disk layouts in docs/formats.md
gen:
    cargo xtask gen

# the documentation of all crates
docs:
    cargo xtask docs

# a Debian package, a static program and an image, in target/package
package *ARGS:
    cargo xtask package {{ARGS}}
