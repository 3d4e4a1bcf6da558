//! Table `device`: what each node has, for summaries that arrive when its agent responds no more.

use super::convert::{bigint, timestamp};
use super::tx::TxError;
use pillion_core::device::DeviceDescription;
use pillion_core::{NodeName, UnixTime};
use sqlx::PgConnection;

pub(super) async fn record(
    conn: &mut PgConnection,
    node: &NodeName,
    devices: &[DeviceDescription],
    at: UnixTime,
) -> Result<(), TxError> {
    for device in devices {
        sqlx::query!(
            "insert into device (node, gres_type, device_index, device_uuid, device_model, memory_bytes, mechanism, seen_at)
            values ($1, $2, $3, $4, $5, $6, $7, $8)
            on conflict (node, gres_type) do update set
                device_index = excluded.device_index, device_uuid = excluded.device_uuid,
                device_model = excluded.device_model, memory_bytes = excluded.memory_bytes,
                mechanism = excluded.mechanism, seen_at = excluded.seen_at",
            node.as_str(),
            device.gres_type.as_str(),
            i64::from(device.index),
            device.uuid.as_str(),
            device.model,
            bigint(device.memory_bytes),
            device.mechanism.as_str(),
            timestamp(at),
        )
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}
