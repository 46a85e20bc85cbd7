//! The sheet of Copy 89's figures 5, 9 and 10: submodels and the paper's formulas on one Ethernet.
//!
//! [`remora_model::nmt1989`] lists their faults.

use remora_model::nmt1989::{Results, Sheet, background};
use remora_model::{Network, Size};
use rust_xlsxwriter::{Workbook, Worksheet, XlsxError};

use super::book::{CellAt, Styles, cell_at, fixed, formula, name};

/// Columns: labels and values on the left, a gap, and the same again.
const LEFT: u16 = 0;
const RIGHT: u16 = 3;

struct WorkstationKind {
    name: String,
    stations: f64,
    packets_per_s: f64,
    bits: f64,
}

pub(super) struct Model {
    medium: String,
    /// The sender, the receiver, and the background.
    kinds: Vec<WorkstationKind>,
    input: Sheet,
    results: Results,
}

impl Model {
    pub(super) fn of(network: &Network) -> Result<Model, &'static str> {
        let input = Sheet::of(network)?;
        let topology = network.topology();
        let results = input.results().ok_or("its formulas have no value here")?;
        let copy = topology.copies.first().ok_or("there is no copy")?;
        let group = |name: &str| topology.groups.iter().find(|g| g.name == name).ok_or("a group is not there");
        let medium = group(&copy.from)?.medium.clone();
        let blocks_per_s = 1.0 / copy.software.get();
        let end = |name: &str, packets: f64, size: Size| WorkstationKind {
            name: name.to_owned(),
            stations: 1.0,
            packets_per_s: packets * blocks_per_s,
            bits: size.mean_bits(),
        };
        let mut kinds = vec![
            end(&copy.from, copy.data.packets, copy.data.size),
            end(&copy.to, copy.reply.packets, copy.reply.size),
        ];
        kinds.extend(background(network).map(|(flow, stations)| WorkstationKind {
            name: flow.from.clone(),
            stations,
            packets_per_s: flow.rate.get(),
            bits: flow.size.mean_bits(),
        }));
        Ok(Model { medium, kinds, input, results })
    }

    pub(super) fn write(&self, book: &mut Workbook) -> Result<(), XlsxError> {
        let sheet = book.add_worksheet().set_name("NMT")?;
        let page = SheetPage { styles: Styles::new(), cells: Cells::of(self.kinds.len() as u32) };
        for (column, width) in [(LEFT, 46.0), (1, 16.0), (2, 3.0), (RIGHT, 46.0), (4, 16.0)] {
            sheet.set_column_width(column, width)?;
        }
        page.heading(sheet)?;
        page.inputs(sheet, self)?;
        page.submodels(sheet, self)?;
        page.ethernet(sheet, self)?;
        page.results(sheet, self)
    }
}

struct Cells {
    count: u32,
    results: u32,
    submodels: u32,
}

const INPUTS: u32 = 5;

impl Cells {
    fn of(count: u32) -> Cells {
        let results = INPUTS + count.max(3) + 1;
        Cells { count, results, submodels: results + 7 }
    }

    fn file(&self) -> String {
        fixed(INPUTS, 1)
    }

    fn speed(&self) -> String {
        fixed(INPUTS + 1, 1)
    }

    fn propagation(&self) -> String {
        fixed(INPUTS + 2, 1)
    }

    fn stations(&self, kind: u32) -> String {
        fixed(INPUTS + kind, 4)
    }

    fn rate(&self, kind: u32) -> String {
        fixed(self.submodels + 1 + 4 * kind, 4)
    }

    fn size(&self, kind: u32) -> String {
        fixed(self.submodels + 2 + 4 * kind, 4)
    }

    /// A row of the Ethernet submodel.
    fn ethernet(&self, row: u32) -> u32 {
        self.submodels + 1 + self.count + row
    }

    fn ethernet_cell(&self, row: u32) -> String {
        fixed(self.ethernet(row), 1)
    }
}

/// Rows of the Ethernet submodel, below those of each kind.
mod row {
    pub(super) const TO: u32 = 0;
    pub(super) const ON: u32 = 1;
    pub(super) const SIZE: u32 = 2;
    pub(super) const TIME: u32 = 3;
    pub(super) const USED: u32 = 4;
    pub(super) const USED_ALL: u32 = 5;
    pub(super) const THROUGHPUT: u32 = 6;
    pub(super) const DELAY: u32 = 7;
    pub(super) const DELAY_MS: u32 = 8;
}

struct SheetPage {
    styles: Styles,
    cells: Cells,
}

impl SheetPage {
    fn heading(&self, sheet: &mut Worksheet) -> Result<(), XlsxError> {
        sheet.write_with_format(0, LEFT, "File Transfer Problem", &self.styles.title)?;
        sheet.write(1, LEFT, "Models transfer of large file over ethernet, includes background traffic")?;
        let notes = "The formulas of Copy 89 (Network Modeling Tool), faults included. Yellow cells are inputs; the rest follows.";
        sheet.write_with_format(2, LEFT, notes, &self.styles.soft)?;
        Ok(())
    }

    fn label(&self, sheet: &mut Worksheet, row: u32, column: u16, text: &str) -> Result<(), XlsxError> {
        sheet.write(row, column, text)?;
        Ok(())
    }

    fn input(&self, sheet: &mut Worksheet, at: CellAt, text: &str, value: f64) -> Result<(), XlsxError> {
        self.label(sheet, at.row, at.column, text)?;
        sheet.write_with_format(at.row, at.column + 1, value, &self.styles.input)?;
        Ok(())
    }

    fn result(&self, sheet: &mut Worksheet, at: CellAt, text: &str, how: &str, value: f64) -> Result<(), XlsxError> {
        self.label(sheet, at.row, at.column, text)?;
        formula(sheet, cell_at(at.row, at.column + 1), how, Some(value), &self.styles.plain)
    }

    fn inputs(&self, sheet: &mut Worksheet, model: &Model) -> Result<(), XlsxError> {
        sheet.write_with_format(INPUTS - 1, LEFT, "Inputs", &self.styles.head)?;
        self.input(sheet, cell_at(INPUTS, LEFT), "File (bytes)", model.input.file_bytes)?;
        self.input(
            sheet,
            cell_at(INPUTS + 1, LEFT),
            &format!("Speed of {} (bps)", model.medium),
            model.input.bits_per_s,
        )?;
        self.input(sheet, cell_at(INPUTS + 2, LEFT), "Propagation time (s)", model.input.propagation_s)?;
        sheet.write_with_format(INPUTS - 1, RIGHT, "Topology", &self.styles.head)?;
        for (i, kind) in (0..).zip(&model.kinds) {
            self.input(
                sheet,
                cell_at(INPUTS + i, RIGHT),
                &format!("{} per {}", kind.name, model.medium),
                kind.stations,
            )?;
        }
        Ok(())
    }

    fn submodels(&self, sheet: &mut Worksheet, model: &Model) -> Result<(), XlsxError> {
        for (i, kind) in (0..).zip(&model.kinds) {
            let first = self.cells.submodels + 4 * i;
            sheet.write_with_format(first, RIGHT, format!("Submodel {} - {}", i + 2, kind.name), &self.styles.head)?;
            let leaving = format!("Packets leaving {} (pps per ws)", kind.name);
            self.input(sheet, cell_at(first + 1, RIGHT), &leaving, kind.packets_per_s)?;
            self.input(sheet, cell_at(first + 2, RIGHT), &format!("{} mean packet size (bits)", kind.name), kind.bits)?;
        }
        Ok(())
    }

    fn ethernet(&self, sheet: &mut Worksheet, model: &Model) -> Result<(), XlsxError> {
        let (cells, medium, results) = (&self.cells, &model.medium, &model.results);
        sheet.write_with_format(cells.submodels, LEFT, format!("Submodel 1 - {medium}"), &self.styles.head)?;
        for (i, kind) in (0..).zip(&model.kinds) {
            let how = format!("={}*{}", cells.stations(i), cells.rate(i));
            let value = kind.stations * kind.packets_per_s;
            self.result(
                sheet,
                cell_at(cells.submodels + 1 + i, LEFT),
                &format!("Packets from {}", kind.name),
                &how,
                value,
            )?;
        }
        let (lambda, bits) = (model.input.offered.packets_per_s(), model.input.offered.mean_bits());
        let first = name(cells.submodels + 1, 1);
        let last = name(cells.submodels + cells.count, 1);
        let products: Vec<String> =
            (0..cells.count).map(|i| format!("{}*{}", name(cells.submodels + 1 + i, 1), cells.size(i))).collect();
        let [to, on, size, time, used] =
            [row::TO, row::ON, row::SIZE, row::TIME, row::USED].map(|r| cells.ethernet_cell(r));
        let at = |row: u32| cell_at(cells.ethernet(row), LEFT);
        self.result(sheet, at(row::TO), &format!("Packets to {medium}"), &format!("=SUM({first}:{last})"), lambda)?;
        self.result(sheet, at(row::ON), &format!("Packets on {medium}"), &format!("={to}"), lambda)?;
        let mean = format!("=({})/{on}", products.join("+"));
        self.result(sheet, at(row::SIZE), &format!("{medium} mean packet size"), &mean, bits)?;
        let x = bits / model.input.bits_per_s;
        self.result(sheet, at(row::TIME), "Time to send a packet (s)", &format!("={size}/{}", cells.speed()), x)?;
        let (l, x_cell, t) = (&on, &time, cells.propagation());
        self.result(
            sheet,
            at(row::USED),
            &format!("Utilization of {medium} (data)"),
            &throughput(l, x_cell, &t),
            results.utilisation,
        )?;
        self.result(
            sheet,
            at(row::USED_ALL),
            "Utilization (data & collisions)",
            &format!("={used}"),
            results.utilisation,
        )?;
        for r in [row::USED, row::USED_ALL] {
            sheet.set_cell_format(cells.ethernet(r), 1, &self.styles.percent)?;
        }
        let carried = format!("={used}/{time}");
        let label = format!("Effective throughput of {medium} (pps)");
        self.result(sheet, at(row::THROUGHPUT), &label, &carried, results.throughput_packets_per_s)?;
        self.result(
            sheet,
            at(row::DELAY),
            &format!("Delay across {medium} (s)"),
            &delay(l, x_cell, &t),
            results.delay_s,
        )?;
        let ms = format!("={}*1000", cells.ethernet_cell(row::DELAY));
        self.result(sheet, at(row::DELAY_MS), &format!("Delay across {medium} (ms)"), &ms, results.delay_s * 1e3)
    }

    fn results(&self, sheet: &mut Worksheet, model: &Model) -> Result<(), XlsxError> {
        let (cells, results) = (&self.cells, &model.results);
        let first = cells.results;
        sheet.write_with_format(first, LEFT, "Results", &self.styles.head)?;
        let at = |i: u32| cell_at(first + i, LEFT);
        let cell = |i: u32| fixed(first + i, 1);
        self.result(
            sheet,
            at(1),
            "Per-packet delay (ms)",
            &format!("={}", cells.ethernet_cell(row::DELAY_MS)),
            results.delay_s * 1e3,
        )?;
        let packets = format!("={}*8/{}", cells.file(), cells.size(0));
        self.result(sheet, at(2), "Total number of packets", &packets, results.packets)?;
        let aggregate = format!("={}*{}", cell(2), cells.ethernet_cell(row::DELAY));
        self.result(sheet, at(3), "Aggregate delay (packets*delay)", &aggregate, results.aggregate_s)?;
        self.result(
            sheet,
            at(4),
            "Simple delay (packets/rate)",
            &format!("={}/{}", cell(2), cells.rate(0)),
            results.simple_s,
        )?;
        self.result(
            sheet,
            at(5),
            "Total delay in seconds",
            &format!("=MAX({},{})", cell(3), cell(4)),
            results.total_s,
        )?;
        let background: Vec<String> =
            (2..cells.count).map(|i| format!("{}*{}*{}", cells.stations(i), cells.rate(i), cells.size(i))).collect();
        let sum = if background.is_empty() { "0".to_owned() } else { background.join("+") };
        let behind: f64 = model.kinds.iter().skip(2).map(|k| k.stations * k.packets_per_s * k.bits).sum();
        self.result(sheet, cell_at(first + 1, RIGHT), "Background traffic (bps)", &format!("={sum}"), behind)?;
        let total = format!("={}*{}", cells.ethernet_cell(row::ON), cells.ethernet_cell(row::SIZE));
        let all = model.input.offered.bits_per_s();
        self.result(sheet, cell_at(first + 2, RIGHT), &format!("Total traffic on {} (bps)", model.medium), &total, all)
    }
}

/// Lam's delay as in the paper.
fn delay(l: &str, x: &str, t: &str) -> String {
    let e = "EXP(1)";
    format!(
        "={x}+2*{t}+2*{e}*{t}\
         -(1-EXP(-2*{l}*{t}))*(2/{l}+2*{t}/{e}-6*{t})/(2*(EXP(-{l}*{x}-{l}*{t}-1)-1+EXP(-2*{l}*{t})))\
         +{l}*({x}^2+(4*{e}+2)*{t}*{x}+5*{t}^2+4*{e}*(2*{e}-1)*{t}^2)/(2*(1-{l}*({x}+{t}+2*{e}*{t})))"
    )
}

/// Tobagi and Hunt's throughput, with the offered load as channel traffic.
fn throughput(l: &str, x: &str, t: &str) -> String {
    let (g, a) = (format!("({l}*{x})"), format!("({t}/{x})"));
    let clear = format!("EXP(-{a}*{g})");
    format!("={g}*{clear}/({g}*{clear}+(2+2)*{a}*{g}*(1-{clear})+2-{clear})")
}
