//! Measures groups quickly: `cargo run --release -p plexum-bench --example quick -- direct`. Groups that start servers
//! want the path of a built `plexum` in `PLEXUM_PROGRAM`.

fn main() -> Result<(), plexum_bench::BenchError> {
    let options = plexum_bench::BenchOptions {
        groups: std::env::args().skip(1).collect(),
        rounds: 3,
        millis: 100,
        io: plexum_runtime::IoChoice::Auto,
        folder: None,
        disk_folder: None,
        program: std::env::var_os("PLEXUM_PROGRAM")
            .unwrap_or_default()
            .into(),
    };
    let report = plexum_bench::run(&options, &mut |step| {
        eprintln!(
            "{} {}: {} of {}",
            step.group, step.what, step.done, step.total
        );
    })?;
    print!("{}", plexum_bench::table(&report.rows));
    print!("{}", plexum_bench::goals_table(&report.lines));
    for skipped in &report.skipped {
        println!(
            "skipped: {} at {}: {}",
            skipped.name, skipped.task, skipped.reason
        );
    }
    Ok(())
}
