//! Networks for which a formula was once wrong by more than 10 % without a reason, each with the
//! result of the simulation (`remora model FILE --simulate`). The model must now be near it, or
//! doubt its own result.

mod copies;
mod delays;
mod networks;
