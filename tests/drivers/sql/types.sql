CREATE TABLE every_type (
  id INT PRIMARY KEY,
  c_tinyint TINYINT, c_utinyint TINYINT UNSIGNED, c_bool BOOL, c_smallint SMALLINT, c_mediumint MEDIUMINT,
  c_int INT, c_uint INT UNSIGNED, c_bigint BIGINT, c_ubigint BIGINT UNSIGNED, c_zerofill INT(8) ZEROFILL,
  c_float FLOAT, c_double DOUBLE, c_decimal DECIMAL(30,10), c_bit1 BIT(1), c_bit64 BIT(64),
  c_date DATE, c_time TIME, c_time6 TIME(6), c_datetime DATETIME, c_datetime6 DATETIME(6), c_timestamp TIMESTAMP NULL, c_timestamp3 TIMESTAMP(3) NULL,
  c_year YEAR,
  c_char CHAR(10), c_varchar VARCHAR(100), c_latin1 VARCHAR(100) CHARACTER SET latin1, c_binary BINARY(8), c_varbinary VARBINARY(100),
  c_tinyblob TINYBLOB, c_blob BLOB, c_mediumblob MEDIUMBLOB, c_longblob LONGBLOB,
  c_tinytext TINYTEXT, c_text TEXT, c_mediumtext MEDIUMTEXT, c_longtext LONGTEXT,
  c_enum ENUM('a','b','c'), c_set SET('x','y','z'), c_json JSON, c_point POINT
) CHARACTER SET utf8mb4;
INSERT INTO every_type VALUES (
  1, -128, 255, TRUE, -32768, -8388608, -2147483648, 4294967295, -9223372036854775808, 18446744073709551615, 42,
  1.5, 2.25, 12345678901234567890.0123456789, b'1', b'1000000000000000000000000000000000000000000000000000000000000001',
  '2024-02-29', '-11:59:59', '12:34:56.789012', '2024-02-29 23:59:58', '2024-02-29 23:59:58.123456', '2024-02-29 23:59:58', '2024-02-29 23:59:58.123',
  2024,
  'char', 'varchar ✓ 😀', 'latin é', 0x00FF, 0x0001FEFF,
  0x00, 0x0102, 0x030405, 0x06070809,
  'tiny', 'text ü', 'medium', 'long 😀',
  'b', 'x,z', '{"a": [1, 2, null]}', ST_GeomFromText('POINT(1 2)')
);
INSERT INTO every_type (id) VALUES (2);
INSERT INTO every_type (id, c_varchar, c_text, c_blob, c_varbinary, c_int, c_double, c_time) VALUES (3, '', '', '', '', 0, 0, '838:59:59');
