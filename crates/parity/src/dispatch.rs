//! Which kernel runs: detection of the machine's instruction sets, the choice, and the one way into each kernel.
//!
//! - A [`Kernels`] table is only ever handed out after its instruction set was found on this machine: that is what the
//!   unsafe calls in this file rest on.
//! - All kernels compute the same bytes, so the choice may change at any time, even while others compute.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

#[cfg(target_arch = "aarch64")]
use crate::neon;
#[cfg(feature = "null-kernel")]
use crate::null;
use crate::scalar;
use crate::short::takes_short_vectors;
use crate::terms::{Found, Outputs, P, Row, Store, Terms};

#[cfg(target_arch = "x86_64")]
use crate::{avx2, avx512, gfni_avx2, gfni_avx512, ssse3};

/// An instruction set with a kernel of its own, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kernel {
    /// Portable code on 64-bit words.
    Scalar,
    /// x86-64 with SSSE3: 16 bytes in a vector.
    Ssse3,
    /// AArch64: 16 bytes in a vector.
    Neon,
    /// x86-64 with AVX2: 32 bytes in a vector.
    Avx2,
    /// x86-64 with AVX2 and the Galois field instructions: any product in one instruction.
    GfniAvx2,
    /// x86-64 with AVX-512 F and BW: 64 bytes in a vector.
    Avx512,
    /// x86-64 with AVX-512 F and BW and the Galois field instructions.
    GfniAvx512,
    /// Computes nothing; see [`NullKernel`](crate::NullKernel), the one way to it.
    #[cfg(feature = "null-kernel")]
    Null,
}

impl Kernel {
    /// Every kernel of this program, slowest first, whether this machine can run it or not.
    pub const ALL: [Kernel; 7] = [
        Kernel::Scalar,
        Kernel::Ssse3,
        Kernel::Neon,
        Kernel::Avx2,
        Kernel::GfniAvx2,
        Kernel::Avx512,
        Kernel::GfniAvx512,
    ];

    /// The name that options and reports use.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Scalar => "scalar",
            Kernel::Ssse3 => "ssse3",
            Kernel::Neon => "neon",
            Kernel::Avx2 => "avx2",
            Kernel::GfniAvx2 => "gfni-avx2",
            Kernel::Avx512 => "avx512",
            Kernel::GfniAvx512 => "gfni-avx512",
            #[cfg(feature = "null-kernel")]
            Kernel::Null => "null",
        }
    }

    /// The kernel of this name; `None` if there is none, whatever the machine.
    pub fn from_name(name: &str) -> Option<Kernel> {
        Kernel::ALL.into_iter().find(|kernel| kernel.name() == name)
    }

    /// Whether this machine can run the kernel.
    pub fn is_available(self) -> bool {
        Kernels::of(self).is_some()
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

type Generate = unsafe fn(u8, &Terms<'_>, usize, &mut Outputs<'_>, Store);
type Check = unsafe fn(&Terms<'_>, usize, &Found<'_>) -> Option<usize>;
type Solve = unsafe fn(u8, &Terms<'_>, usize, &Found<'_>, &[Row], &mut [&mut [u8]]);

/// One kernel that this machine can run: the parity functions as methods.
///
/// The functions of the same names at the crate's root use the chosen kernel; a benchmark or a test takes a given one
/// from [`Kernels::of`].
pub struct Kernels {
    kernel: Kernel,
    generate: Generate,
    /// For XOR that is faster in vectors of 32 bytes: of AVX2 where the kernel's own are of 64, else `generate`.
    generate_short: Generate,
    check: Check,
    solve: Solve,
}

/// The table of one instruction set's file, and of the one with shorter vectors, where it takes them at times.
macro_rules! table {
    ($kernel:ident, $file:ident) => {
        table!($kernel, $file, $file)
    };
    ($kernel:ident, $file:ident, $short:ident) => {{
        static TABLE: Kernels = Kernels {
            kernel: Kernel::$kernel,
            generate: $file::generate,
            generate_short: $short::generate,
            check: $file::check,
            solve: $file::solve,
        };
        &TABLE
    }};
}

impl Kernels {
    /// A table of functions that run on every machine.
    #[cfg(feature = "null-kernel")]
    pub(crate) const fn new(
        kernel: Kernel,
        generate: Generate,
        check: Check,
        solve: Solve,
    ) -> Self {
        Kernels {
            kernel,
            generate,
            generate_short: generate,
            check,
            solve,
        }
    }

    /// The kernel, if this machine can run it.
    pub fn of(kernel: Kernel) -> Option<&'static Kernels> {
        match kernel {
            Kernel::Scalar => Some(table!(Scalar, scalar)),
            #[cfg(target_arch = "x86_64")]
            Kernel::Ssse3 => is_x86_feature_detected!("ssse3").then_some(table!(Ssse3, ssse3)),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => is_x86_feature_detected!("avx2").then_some(table!(Avx2, avx2)),
            #[cfg(target_arch = "x86_64")]
            Kernel::GfniAvx2 => (is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("gfni"))
            .then_some(table!(GfniAvx2, gfni_avx2)),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => has_avx512().then_some(table!(Avx512, avx512, avx2)),
            #[cfg(target_arch = "x86_64")]
            Kernel::GfniAvx512 => (has_avx512() && is_x86_feature_detected!("gfni"))
                .then_some(table!(GfniAvx512, gfni_avx512, avx2)),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => {
                std::arch::is_aarch64_feature_detected!("neon").then_some(table!(Neon, neon))
            }
            _ => None,
        }
    }

    /// Which kernel this is.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Computes the parities of `set` into the outputs, or adds to them.
    #[inline]
    pub(crate) fn generate(
        &self,
        set: u8,
        terms: &Terms<'_>,
        outputs: &mut Outputs<'_>,
        store: Store,
    ) {
        let generate = match set == P && takes_short_vectors(terms.blocks().len(), terms.length()) {
            true => self.generate_short,
            false => self.generate,
        };
        // SAFETY: a table is only handed out where its instruction sets were detected; the function is safe otherwise.
        unsafe { generate(set, terms, 0, outputs, store) }
    }

    /// The first byte at which a parity that is there is not the sum of the blocks.
    #[inline]
    pub(crate) fn check(&self, terms: &Terms<'_>, found: &Found<'_>) -> Option<usize> {
        // SAFETY: as in `generate`.
        unsafe { (self.check)(terms, 0, found) }
    }

    /// Computes the targets of `rows` from the sums of `set`, to which the parities found are added first.
    #[inline]
    pub(crate) fn solve(
        &self,
        set: u8,
        terms: &Terms<'_>,
        found: &Found<'_>,
        rows: &[Row],
        targets: &mut [&mut [u8]],
    ) {
        // SAFETY: as in `generate`.
        unsafe { (self.solve)(set, terms, 0, found, rows, targets) }
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kernels").field(&self.kernel).finish()
    }
}

/// Both parts of AVX-512 that the kernels use, and AVX2, which every processor with them has.
#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx2")
}

/// The number of the chosen kernel in [`Kernel::ALL`], or [`NONE_YET`].
static CHOSEN: AtomicU8 = AtomicU8::new(NONE_YET);
const NONE_YET: u8 = u8::MAX;

/// The kernels that this machine can run, slowest first; never empty.
pub fn kernels() -> impl Iterator<Item = &'static Kernels> {
    Kernel::ALL.into_iter().filter_map(Kernels::of)
}

/// The kernel that the functions at the crate's root use: the one set, or the fastest that this machine can run.
#[inline]
pub fn chosen() -> &'static Kernels {
    #[cfg(feature = "null-kernel")]
    if let Some(null) = null::in_force() {
        return null;
    }
    let number = CHOSEN.load(Ordering::Relaxed);
    Kernel::ALL
        .get(usize::from(number))
        .and_then(|&kernel| Kernels::of(kernel))
        .unwrap_or_else(choose)
}

/// Chooses the fastest kernel, at the first use.
#[cold]
fn choose() -> &'static Kernels {
    let best = kernels()
        .last()
        .expect("the portable kernel runs everywhere");
    let _ = CHOSEN.compare_exchange(
        NONE_YET,
        best.kernel as u8,
        Ordering::Relaxed,
        Ordering::Relaxed,
    );
    best
}

/// The kernel that was asked for needs an instruction set that this machine has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelUnavailable {
    /// The kernel that was asked for.
    pub kernel: Kernel,
}

impl fmt::Display for KernelUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "parity kernel {}: this machine has not its instructions; choose one of",
            self.kernel
        )?;
        kernels().try_for_each(|available| write!(f, " {}", available.kernel))
    }
}

impl std::error::Error for KernelUnavailable {}

/// Makes `kernel` the one that the functions at the crate's root use, in the whole process.
///
/// May be called at any time: all kernels compute the same bytes.
/// # Errors
/// [`KernelUnavailable`] if this machine cannot run it; the choice stays as it was.
pub fn set_kernel(kernel: Kernel) -> Result<(), KernelUnavailable> {
    Kernels::of(kernel).ok_or(KernelUnavailable { kernel })?;
    CHOSEN.store(kernel as u8, Ordering::Relaxed);
    Ok(())
}

/// One line for people: the chosen kernel and those that could be chosen, as `avx2 (of scalar ssse3 avx2)`.
pub fn describe() -> String {
    let names: Vec<_> = kernels().map(|available| available.kernel.name()).collect();
    format!("{} (of {})", chosen().kernel, names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_all_is_that_of_the_numbers() {
        for (number, kernel) in Kernel::ALL.into_iter().enumerate() {
            assert_eq!(kernel as usize, number);
            assert_eq!(Kernel::from_name(kernel.name()), Some(kernel));
        }
        assert_eq!(Kernel::from_name("AVX2"), None);
    }

    #[test]
    fn every_table_belongs_to_its_kernel_and_missing_ones_are_refused() {
        assert!(Kernel::Scalar.is_available());
        for kernel in Kernel::ALL {
            match Kernels::of(kernel) {
                Some(table) => assert_eq!(table.kernel(), kernel),
                None => {
                    let error = set_kernel(kernel).unwrap_err();
                    assert_eq!(error, KernelUnavailable { kernel });
                    assert!(error.to_string().contains("choose one of scalar"));
                }
            }
        }
    }

    #[test]
    fn a_kernel_that_was_set_is_the_one_chosen_and_shown() {
        for available in kernels() {
            set_kernel(available.kernel()).unwrap();
            assert_eq!(chosen().kernel(), available.kernel());
            assert!(describe().starts_with(available.kernel().name()));
        }
        assert_eq!(
            Some(chosen().kernel()),
            kernels().last().map(Kernels::kernel)
        );
    }
}
