-- Two roles for Pillion's database on a PostgreSQL server (15 or newer) of the site: one that owns the tables, as which nobody logs in,
-- and one that the scheduler connects as, which reads and writes rows and can do nothing else. Run it as a superuser, as often as you like:
--
--     sudo -u postgres psql -v ON_ERROR_STOP=1 -f /usr/share/pillion/postgres/roles.sql
--     sudo -u postgres createdb --owner pillion_owner pillion
--     sudo -u postgres psql -c '\password pillion_scheduler'
--     sudo -u postgres pillion-scheduler migrate --database 'postgres:///pillion?host=/run/postgresql&user=postgres'
--
-- The last line once more before the scheduler of each new release is started.

do $$
begin
    if not exists (select from pg_roles where rolname = 'pillion_owner') then
        create role pillion_owner nologin;
    end if;
    if not exists (select from pg_roles where rolname = 'pillion_scheduler') then
        create role pillion_scheduler login;
    end if;
end
$$;
alter role pillion_owner nologin nosuperuser nocreatedb nocreaterole noreplication nobypassrls;
alter role pillion_scheduler login nosuperuser nocreatedb nocreaterole noreplication nobypassrls;
