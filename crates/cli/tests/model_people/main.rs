//! The network model for people, from the outside: spreadsheet, report, page, capture, sweep. Tests
//! that need a browser or a spreadsheet program are skipped by name where there is none.

#[path = "../common/mod.rs"]
mod common;
mod draw;
mod files;
mod network;
mod page;
mod requests;
mod sheet;

use common::trials::trial;
use libtest_mimic::{Arguments, Trial};

fn main() {
    let args = Arguments::from_args();
    let tell = !args.list;
    let plain = |name, run| trial(name, &[], false, run, tell);
    let trials: Vec<Trial> = vec![
        plain("model::html_is_one_file", files::html_is_one_file),
        plain("model::pages_replace_nothing_but_files", files::pages_replace_nothing_but_files),
        plain("model::answers_every_figure", files::answers_every_figure),
        plain("model::check_judges_random_networks", files::check_judges_random_networks),
        plain("model::sweeps", files::sweeps),
        plain("model::calibrates", files::calibrates),
        plain("model::bad_captures_and_flags", files::bad_captures_and_flags),
        plain("model::serve_answers_this_machine_only", requests::only_this_machine),
        plain("model::serve_bounds_requests", requests::requests_are_bounded),
        plain("model::serve_takes_large_networks", requests::large_networks_have_what_matters),
        plain("model::serve_ends_with_a_signal", requests::ends_with_a_signal),
        trial("model::xlsx_follows_its_inputs", &["soffice"], false, sheet::follows_its_inputs, tell),
        trial("model::xlsx_of_networks", &["soffice"], false, network::follows_its_inputs, tell),
        trial("model::xlsx_of_a_copy", &["soffice"], false, network::follows_its_inputs_with_a_copy, tell),
        plain("model::xlsx_refuses", network::refuses_what_it_cannot_hold),
        trial("model::page_in_a_browser", &["chromium", "chromedriver"], false, page::in_a_browser, tell),
        trial("model::page_on_a_phone", &["chromium", "chromedriver"], false, page::on_a_phone, tell),
    ];
    libtest_mimic::run(&args, trials).exit();
}

/// An example's path.
fn example(name: &str) -> String {
    format!("{}/../../docs/examples/{name}", env!("CARGO_MANIFEST_DIR"))
}
