CREATE PROCEDURE two_results(IN a INT, OUT b INT, INOUT c INT)
BEGIN
  SET b = a * 2;
  SET c = c + a;
  SELECT a AS first;
  SELECT 'second' AS word, a + 1 AS number UNION ALL SELECT 'third', a + 2;
END
