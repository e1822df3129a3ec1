//! A table as an Apache Parquet file, for data frames and databases. Behind the feature `parquet`.
//!
//! Invariant: every column is optional, has the type of what it holds, and every row of the table is there.

use std::sync::Arc;

use ::parquet::basic::{ConvertedType, Repetition, Type as Physical};
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::types::{Type, TypePtr};
use serde_json::Value;

use super::results::Holds;
use super::table::Table;
use crate::error::LabError;

/// The file of a table whose columns hold these.
///
/// # Errors
/// `Bug` when a name or a cell does not fit its column.
pub fn file(table: &Table, columns: &[(&str, Holds)]) -> Result<Vec<u8>, LabError> {
    write(table, columns).map_err(|error| LabError::Bug(format!("Parquet: {error}")))
}

fn schema(columns: &[(&str, Holds)]) -> Result<Type, ParquetError> {
    let field = |(name, holds): &(&str, Holds)| -> Result<TypePtr, ParquetError> {
        let (physical, converted) = match holds {
            Holds::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
            Holds::Whole => (Physical::INT64, ConvertedType::NONE),
            Holds::Real => (Physical::DOUBLE, ConvertedType::NONE),
            Holds::Fact => (Physical::BOOLEAN, ConvertedType::NONE),
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_converted_type(converted);
        Ok(Arc::new(field.build()?))
    };
    let fields: Result<Vec<TypePtr>, ParquetError> = columns.iter().map(field).collect();
    Type::group_type_builder("results")
        .with_fields(fields?)
        .build()
}

fn write(table: &Table, columns: &[(&str, Holds)]) -> Result<Vec<u8>, ParquetError> {
    let properties = Arc::new(WriterProperties::new());
    let mut file = SerializedFileWriter::new(Vec::new(), Arc::new(schema(columns)?), properties)?;
    let mut group = file.next_row_group()?;
    for (index, (_, holds)) in columns.iter().enumerate() {
        let Some(mut column) = group.next_column()? else {
            break;
        };
        let cells: Vec<&Value> = table.rows.iter().map(|row| &row[index]).collect();
        write_column(&mut column, &cells, *holds)?;
        column.close()?;
    }
    group.close()?;
    file.into_inner()
}

fn write_column(
    column: &mut SerializedColumnWriter<'_>,
    cells: &[&Value],
    holds: Holds,
) -> Result<(), ParquetError> {
    let there: Vec<i16> = cells
        .iter()
        .map(|cell| i16::from(!cell.is_null()))
        .collect();
    let there = Some(there.as_slice());
    let full = || cells.iter().filter(|cell| !cell.is_null());
    let odd = |cell: &Value| ParquetError::General(format!("{cell} does not fit its column"));
    match holds {
        Holds::Text => {
            let texts = full().map(|cell| cell.as_str().ok_or_else(|| odd(cell)));
            let values: Result<Vec<ByteArray>, _> =
                texts.map(|text| text.map(ByteArray::from)).collect();
            column
                .typed::<ByteArrayType>()
                .write_batch(&values?, there, None)?;
        }
        Holds::Whole => {
            let values: Result<Vec<i64>, _> = full()
                .map(|cell| cell.as_i64().ok_or_else(|| odd(cell)))
                .collect();
            column
                .typed::<Int64Type>()
                .write_batch(&values?, there, None)?;
        }
        Holds::Real => {
            let values: Result<Vec<f64>, _> = full()
                .map(|cell| cell.as_f64().ok_or_else(|| odd(cell)))
                .collect();
            column
                .typed::<DoubleType>()
                .write_batch(&values?, there, None)?;
        }
        Holds::Fact => {
            let values: Result<Vec<bool>, _> = full()
                .map(|cell| cell.as_bool().ok_or_else(|| odd(cell)))
                .collect();
            column
                .typed::<BoolType>()
                .write_batch(&values?, there, None)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::Field;
    use serde_json::json;

    const COLUMNS: [(&str, Holds); 4] = [
        ("name", Holds::Text),
        ("count", Holds::Whole),
        ("rate", Holds::Real),
        ("is_sync", Holds::Fact),
    ];

    #[test]
    fn a_parquet_file_is_read_back_with_every_cell_and_every_gap() {
        let mut table = Table::new("", &COLUMNS.map(|(name, _)| name));
        table.push(vec![
            json!("Röhre, \"5\""),
            json!(1_u64 << 40),
            json!(0.25),
            json!(true),
        ]);
        table.push(vec![json!(""), Value::Null, json!(3), json!(false)]);
        table.push(vec![Value::Null, json!(0), Value::Null, Value::Null]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.parquet");
        std::fs::write(&path, file(&table, &COLUMNS).unwrap()).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let rows: Vec<Vec<(String, Field)>> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| {
                let row = row.unwrap();
                let cells = row.get_column_iter();
                cells
                    .map(|(name, cell)| (name.clone(), cell.clone()))
                    .collect()
            })
            .collect();
        let cell = |row: usize, column: usize| rows[row][column].1.clone();
        assert_eq!(rows.len(), 3);
        for (column, (name, _)) in COLUMNS.iter().enumerate() {
            assert_eq!(rows[0][column].0, *name);
        }
        assert_eq!(cell(0, 0), Field::Str("Röhre, \"5\"".to_owned()));
        assert_eq!(cell(0, 1), Field::Long(1 << 40));
        assert_eq!(cell(0, 2), Field::Double(0.25));
        assert_eq!(cell(0, 3), Field::Bool(true));
        assert_eq!(cell(1, 0), Field::Str(String::new()));
        assert_eq!((cell(1, 1), cell(1, 2)), (Field::Null, Field::Double(3.0)));
        assert_eq!((cell(2, 0), cell(2, 1)), (Field::Null, Field::Long(0)));
        assert_eq!((cell(2, 2), cell(2, 3)), (Field::Null, Field::Null));

        let mut odd = Table::new("", &COLUMNS.map(|(name, _)| name));
        odd.push(vec![json!(1), Value::Null, Value::Null, Value::Null]);
        assert!(matches!(file(&odd, &COLUMNS), Err(LabError::Bug(_))));
    }
}
