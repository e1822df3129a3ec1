//! XOR and Reed-Solomon parity: P, Q, R, by instruction set
