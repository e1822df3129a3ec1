/* zdb has said everything when it begins to take OpenZFS down. 2.3 spins five seconds of a processor there, until the
 * blocks that it has read ahead are old enough to be let go of; 2.1 half a second. It ends at once instead: its exit
 * code and what it has printed are the same. */
void kernel_fini(void) {}
