//! Prints the whole table once, quickly: `cargo run --release -p plexum-bench --example quick`.

fn main() -> Result<(), plexum_bench::BenchError> {
    let options = plexum_bench::BenchOptions {
        groups: std::env::args().skip(1).collect(),
        rounds: 3,
        millis: 100,
        io: plexum_runtime::IoChoice::Auto,
        folder: std::env::temp_dir(),
    };
    print!(
        "{}",
        plexum_bench::table(&plexum_bench::run(&options, |done, all| eprintln!(
            "{done} of {all}"
        ))?)
    );
    Ok(())
}
